-- Hands a fair lock over to a waiter if the waiter is first in the queue. Otherwise frees the lock
-- and notifies the first.
--
-- KEYS      see fair_queue.lua, also for ARGV[1] to ARGV[7]
-- KEYS[4]   of fenced handles: counter of fencing tokens. A hand-over, a repeat too, draws one; see
--           fenced_draw.lua, which stands before this script then
-- ARGV[8]   wire owner of the old hold
-- ARGV[9]   lease of the new hold, ms
-- ARGV[10]  wire owner of the waiter
--
-- Reply:
--    1      handed over without a counter
--    token  handed over with a counter; a number, or a string of its digits
--   -1      freed
--    0      the old hold is gone, and the waiter does not hold the lock

local from, to = ARGV[8], ARGV[10]
if redis.call('HEXISTS', KEYS[1], from) == 0 then
  if redis.call('HEXISTS', KEYS[1], to) == 0 then
    return 0
  end
  -- This is a repeat. The lease counts from this attempt.
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[9]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[9])
  end
  return KEYS[4] and draw(KEYS[4]) or 1
end

local first = head()
if first == to then
  -- Redis with full memory refuses a write that may need memory, but only as the first write of a
  -- script. PEXPIRE needs none.
  redis.call('PEXPIRE', KEYS[1], ARGV[9])
  local token = KEYS[4] and draw(KEYS[4]) or 1
  redis.call('HSET', KEYS[1], to, '1')
  redis.call('HDEL', KEYS[1], from)
  leave({to})
  return token
end

redis.call('HDEL', KEYS[1], from)
if first then
  summon(first)
else
  clear()
end
return -1
