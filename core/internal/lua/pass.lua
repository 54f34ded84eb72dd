-- Hands a plain lock, or a fenced write side, over from one hold to another. The lock is never free
-- in between.
--
-- KEYS[1]  lock hash
-- KEYS[2]  of fenced handles: counter of fencing tokens. A hand-over, a repeat too, draws one; see
--          fenced_draw.lua, which stands before this script then
-- ARGV[1]  field of the old hold
-- ARGV[2]  field of the new hold
-- ARGV[3]  lease of the new hold, ms
--
-- Reply:
--   1      handed over without a counter
--   token  handed over with a counter; a number, or a string of its digits
--   0      the old hold is gone, and the new one does not exist

local repeated = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0
if repeated and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return 0
end

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. PEXPIRE needs none. In a repeat, the lease counts from this attempt.
if not repeated or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
local token = KEYS[2] and draw(KEYS[2]) or 1
if not repeated then
  redis.call('HSET', KEYS[1], ARGV[2], '1')
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return token
