-- Hands a lock on from one hold to another, which takes its place at once: nobody else ever finds the lock free.
-- See pass_repeat.lua and pass_others.lua for what comes first.
--
-- KEYS[1]  lock hash
-- ARGV[1]  field of the hold that goes
-- ARGV[2]  field of the hold that comes
-- ARGV[3]  lease of the latter, ms
--
-- Reply: 1, done; 0, the hold that goes is gone already; -1, there are others, nothing is done.

if others() then
  return -1
end

redis.call('HSET', KEYS[1], ARGV[2], '1')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
