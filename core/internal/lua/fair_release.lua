-- Frees a hold of a fair lock, or removes its owner from the queue. If the lock is free then,
-- notifies the first in the queue.
--
-- KEYS     see fair_queue.lua, also for ARGV[1] to ARGV[6]
-- ARGV[7]  wire owner
--
-- Reply:
--   1  freed
--   0  there was no hold

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. HDEL needs none.
local holds = redis.call('HLEN', KEYS[1])
local freed = redis.call('HDEL', KEYS[1], ARGV[7])

local waits = freed == 1 or leave(ARGV[7]) -- false: the queue is empty
local first = waits and head()
if waits and not first then
  clear()
elseif first and holds == freed then
  summon(first)
end
return freed
