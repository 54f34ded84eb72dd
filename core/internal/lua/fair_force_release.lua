-- Takes a fair lock from its holder, tells it, and notifies the first in the queue. An owner that
-- acquired the lock after the holder was read keeps it, because its loss was not reported. See also
-- force_take.lua.
--
-- KEYS       see fair_queue.lua, also for ARGV[1] to ARGV[6]
-- ARGV[7]    number of wire owners, n
-- ARGV[8..]  wire owners of the holders
-- ARGV[n+8]  prefix of the clients' channels
--
-- Reply:
--   1  taken
--   0  none of them holds it

local n = tonumber(ARGV[7])
if take(8, n, ARGV[n + 8]) == 0 then
  return 0
end

local first = head()
if first then
  summon(first)
else
  clear()
end
return 1
