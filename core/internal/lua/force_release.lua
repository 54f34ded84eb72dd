-- Takes a lock from its holders. If the lock is free then, publishes the release. An owner that
-- acquired the lock after the holders were read keeps it, because its loss was not reported.
--
-- KEYS[1]     lock hash
-- ARGV[1]     number of fields, n
-- ARGV[2..]   fields of the holders
-- ARGV[n+2]   channel
-- ARGV[n+3]   message
-- ARGV[n+4..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1  taken
--   0  none of them holds it

local n = tonumber(ARGV[1])
local taken = 0
for i = 2, n + 1 do
  taken = taken + redis.call('HDEL', KEYS[1], ARGV[i])
end
if taken == 0 then
  return 0
end

local mode = redis.call('HEXISTS', KEYS[1], 'mode')
if redis.call('HLEN', KEYS[1]) > mode then
  return 1 -- readers have entered since
end
redis.call('DEL', KEYS[1])
for i = n + 4, #ARGV do
  redis.pcall(ARGV[i], ARGV[n + 2], ARGV[n + 3])
end
return 1
