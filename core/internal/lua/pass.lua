-- Hands a lock over from one hold to another. The lock is never free in between.
--
-- KEYS[1]  lock hash
-- ARGV[1]  field of the old hold
-- ARGV[2]  field of the new hold
-- ARGV[3]  lease of the new hold, ms
--
-- Reply:
--   1  handed over
--   0  the old hold is gone, and the new one does not exist

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
    return 0
  end
  -- This is a repeat. The lease counts from this attempt.
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  return 1
end

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. PEXPIRE needs none.
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[1], ARGV[2], '1')
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
