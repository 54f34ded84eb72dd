-- Frees a hold of a fair lock, or removes its owner from the queue, for each of some wire owners. If
-- the lock is free then, notifies the first in the queue.
--
-- KEYS       see fair_queue.lua, also for ARGV[1] to ARGV[7]
-- ARGV[8..]  wire owners; one of them can have a hold
--
-- Reply:
--   1  freed
--   0  there was no hold

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. HDEL needs none.
local holds = redis.call('HLEN', KEYS[1])
local freed, waiters = 0, {}
for i = 8, #ARGV do
  local held = redis.call('HDEL', KEYS[1], ARGV[i])
  freed = freed + held
  if held == 0 then
    table.insert(waiters, ARGV[i])
  end
end
local waits = #waiters == 0 or leave(waiters) -- false: the queue is empty
local first = waits and head()
if waits and not first then
  clear()
elseif first and holds == freed then
  summon(first)
end
return math.min(freed, 1)
