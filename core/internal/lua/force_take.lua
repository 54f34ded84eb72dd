-- Takes a lock from its holders. This is not a script, but the beginning of force_release.lua and
-- fair_force_release.lua. force_tell.lua stands before it.

-- Removes the fields ARGV[first] to ARGV[first + count - 1] and tells their clients. prefix is that
-- of the clients' channels. Returns how many of the fields there were, whether the lock is a
-- read/write lock, and the reply: how many owners hold the lock still, then for each field 1 if it
-- was there, otherwise 0. The hash is not read after its last field is gone: in a slot in migration,
-- a missing key is an error.
local function take(first, count, prefix)
  local mode = redis.call('HEXISTS', KEYS[1], 'mode')
  local owners = redis.call('HLEN', KEYS[1]) - mode
  local taken, reply = {}, { owners }
  for i = first, first + count - 1 do
    local there = redis.call('HDEL', KEYS[1], ARGV[i])
    table.insert(reply, there)
    if there == 1 then
      table.insert(taken, ARGV[i])
    end
  end
  tell(taken, prefix, KEYS[1])
  reply[1] = owners - #taken
  return #taken, mode == 1, reply
end

