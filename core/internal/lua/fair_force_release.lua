-- Takes a fair lock from the given holder, tells it, and notifies the first in the queue. Any other
-- owner keeps it, because its loss was not reported. See also force_take.lua.
--
-- KEYS       see fair_queue.lua, also for ARGV[1] to ARGV[7]
-- ARGV[8]    number of wire owners, n
-- ARGV[9..]  wire owners of the holders
-- ARGV[n+9]  prefix of the clients' channels
--
-- Reply: see force_take.lua.

local n = tonumber(ARGV[8])
local taken, _, reply = take(9, n, ARGV[n + 9])
if taken == 0 then
  return reply
end

local first = head()
if first then
  summon(first)
else
  clear()
end
return reply
