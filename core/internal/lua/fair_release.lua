-- Frees a hold of a fair lock, or takes its owner out of the queue, whichever there is to do, and tells the first in the
-- queue if the lock is free.
--
-- KEYS     see fair_queue.lua, also for the first of ARGV
-- ARGV[7]  wire owner
--
-- Reply: 1, freed; 0, the hold was gone already, or never was.

-- The first write needs no memory: after it Redis refuses none, also when its memory is full.
local holds = redis.call('HLEN', KEYS[1])
local freed = redis.call('HDEL', KEYS[1], ARGV[7])

local waits = freed == 1 or leave(ARGV[7]) -- others, as far as is known
local first = waits and head()
if first and holds == freed then
  summon(first)
end
return freed
