-- Takes a lock from the given holders and tells them. If the lock is free then, publishes the
-- release. Any other owner keeps it, because its loss was not reported. See also force_take.lua.
--
-- KEYS[1]     lock hash
-- ARGV[1]     number of fields, n
-- ARGV[2..]   fields of the holders
-- ARGV[n+2]   prefix of the clients' channels
-- ARGV[n+3]   channel
-- ARGV[n+4]   message
-- ARGV[n+5..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: see force_take.lua.

local n = tonumber(ARGV[1])
local taken, readWrite, reply = take(2, n, ARGV[n + 2])
if taken == 0 or reply[1] > 0 then
  return reply
end

if readWrite then
  redis.call('DEL', KEYS[1]) -- its mode is left
end
for i = n + 5, #ARGV do
  redis.pcall(ARGV[i], ARGV[n + 3], ARGV[n + 4])
end
return reply
