-- Frees a fair lock that is still held by one of those who were found to hold it, and tells the first in the queue. It leaves
-- alone who has taken it since: that one has not been told.
--
-- KEYS        see fair_queue.lua
-- ARGV[1]     number of wire owners
-- ARGV[2..]   wire owners
-- ARGV[n+2]   what precedes the first one's wire owner in the name of its channel
-- ARGV[n+3]   message
-- ARGV[n+4..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: 1, freed; 0, none of them held it.

local n = tonumber(ARGV[1])
local held = false
for i = 2, n + 1 do
  held = held or redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1
end
if not held then
  return 0
end

local first = head()
redis.call('DEL', KEYS[1])
if first then
  for i = n + 4, #ARGV do
    redis.pcall(ARGV[i], ARGV[n + 2] .. first, ARGV[n + 3])
  end
end
return 1
