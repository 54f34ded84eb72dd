-- Takes a fair lock from its holder and notifies the first in the queue. An owner that acquired the
-- lock after the holder was read keeps it, because its loss was not reported.
--
-- KEYS      see fair_queue.lua, also for ARGV[1] to ARGV[6]
-- ARGV[7]   number of wire owners
-- ARGV[8..] wire owners of the holders
--
-- Reply:
--   1  taken
--   0  none of them holds it

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
