-- Takes a lock from its holders. This is not a script, but the beginning of force_release.lua and
-- fair_force_release.lua.
--
-- Each client of reqlock listens on a channel of its own, so that a holder learns at once that it
-- has lost the lock. The message is the key of the lock. It is a hint: the holder asks Redis. A wire
-- owner of reqlock names its client: that of web-1.4242.k3j9x2ab:7 ends at the colon and has a dot.
-- The owners of Redisson have no dot. Nothing is published for them.

-- Removes the fields ARGV[first] to ARGV[first + count - 1] and tells their clients. prefix is that
-- of the clients' channels. Returns how many of the fields there were, whether the lock is a
-- read/write lock, and the reply: how many owners hold the lock still, then for each field 1 if it
-- was there, otherwise 0. The hash is not read after its last field is gone: in a slot in migration,
-- a missing key is an error.
local function take(first, count, prefix)
  local mode = redis.call('HEXISTS', KEYS[1], 'mode')
  local owners = redis.call('HLEN', KEYS[1]) - mode
  local taken, reply, clients, seen = 0, { owners }, {}, {}
  for i = first, first + count - 1 do
    local there = redis.call('HDEL', KEYS[1], ARGV[i])
    table.insert(reply, there)
    if there == 1 then
      taken = taken + 1
      local client = string.match(ARGV[i], '^([%w_.-]+%.%w+):%d+')
      if client and not seen[client] then
        seen[client] = true
        table.insert(clients, client)
      end
    end
  end
  -- The lock is taken. If the user may not publish, that must still succeed.
  for _, client in ipairs(clients) do
    redis.pcall('PUBLISH', prefix .. client, KEYS[1])
  end
  reply[1] = owners - taken
  return taken, mode == 1, reply
end

