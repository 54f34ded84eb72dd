-- Takes permits from the given holders and tells them and their guests. See also force_tell.lua.
--
-- KEYS[1]     number of free permits
-- KEYS[2]     permits that are taken
-- KEYS[2+i]   family of the i-th holder's permits; see permit_enter.lua
-- ARGV[1]     name of the semaphore
-- ARGV[2]     number of holders, n
-- ARGV[3..]   wire owners of the holders; each loses all its permits. Redisson has
--             ids of 16 bytes, here as bytes or as hex digits
-- ARGV[n+3]   prefix of the clients' channels
-- ARGV[n+4]   channel
-- ARGV[n+5..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: how many permits others have still, then for each holder 1 if it had permits, otherwise 0.

local n, freed, taken, reply = tonumber(ARGV[2]), 0, {}, {0}
for i = 3, n + 2 do
  local dropped = 0
  while drop(KEYS[2], permit(ARGV[i], dropped + 1), 1) == 1 do
    dropped = dropped + 1
  end
  if dropped == 0 and #ARGV[i] == 32 and not string.find(ARGV[i], '%X') then
    local bytes = string.gsub(ARGV[i], '%x%x', function(digits) return string.char(tonumber(digits, 16)) end)
    dropped = drop(KEYS[2], bytes, 1)
  end
  freed = freed + dropped
  table.insert(reply, math.min(dropped, 1))
  if dropped > 0 then
    table.insert(taken, ARGV[i])
    for _, user in ipairs(redis.call('ZRANGE', KEYS[i], 0, -1)) do
      table.insert(taken, user)
    end
    redis.call('DEL', KEYS[i])
  end
end
if freed > 0 then
  tell(taken, ARGV[n + 3], ARGV[1])
  announce(KEYS[1], freed, n + 4)
end
reply[1] = redis.call('ZCARD', KEYS[2])
return reply
