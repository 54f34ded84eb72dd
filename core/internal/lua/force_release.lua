-- Takes a lock from its holders and tells them. If the lock is free then, publishes the release. An
-- owner that acquired the lock after the holders were read keeps it, because its loss was not
-- reported. See also force_take.lua.
--
-- KEYS[1]     lock hash
-- ARGV[1]     number of fields, n
-- ARGV[2..]   fields of the holders
-- ARGV[n+2]   prefix of the clients' channels
-- ARGV[n+3]   channel
-- ARGV[n+4]   message
-- ARGV[n+5..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1  taken
--   0  none of them holds it

local n = tonumber(ARGV[1])
if take(2, n, ARGV[n + 2]) == 0 then
  return 0
end

local mode = redis.call('HEXISTS', KEYS[1], 'mode')
if redis.call('HLEN', KEYS[1]) > mode then
  return 1 -- readers have entered since
end
redis.call('DEL', KEYS[1])
for i = n + 5, #ARGV do
  redis.pcall(ARGV[i], ARGV[n + 3], ARGV[n + 4])
end
return 1
