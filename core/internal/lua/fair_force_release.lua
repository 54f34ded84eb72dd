-- Frees a fair lock that is still held by one of those who were found to hold it, and tells the first in the queue. It leaves
-- alone who has taken it since: that one has not been told.
--
-- KEYS      see fair_queue.lua, also for the first of ARGV
-- ARGV[7]   number of wire owners
-- ARGV[8..] wire owners
--
-- Reply: 1, freed; 0, none of them held it.

local taken = 0
for i = 8, ARGV[7] + 7 do
  taken = taken + redis.call('HDEL', KEYS[1], ARGV[i])
end
if taken == 0 then
  return 0
end

local first = head()
if first then
  summon(first)
end
return 1
