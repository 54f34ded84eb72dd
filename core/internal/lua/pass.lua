-- Hands a lock on from one hold to another, which takes its place at once: the lock is never free in between.
--
-- KEYS[1]  lock hash
-- ARGV[1]  field of the hold that goes
-- ARGV[2]  field of the hold that comes
-- ARGV[3]  lease of the latter, ms
--
-- Reply: 1, done; 0, the hold that goes is gone already.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
    return 0
  end
  -- This is a repeat: the lease is counted from it.
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  return 1
end

-- The first write needs no memory: after it Redis refuses none, also when its memory is full.
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HSET', KEYS[1], ARGV[2], '1')
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
