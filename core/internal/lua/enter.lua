-- Enters a lock as the guest of a hold, or repeats an entry whose reply was lost. The guest has its
-- own field, so from then on its hold does not depend on the other one.
--
-- KEYS[1]  lock hash
-- KEYS[2]  of a read side: time-out key of the guest's first read level
-- ARGV[1]  field of the hold that it is the guest of
-- ARGV[2]  field of the guest
-- ARGV[3]  lease, ms
--
-- Reply:
--   1      entered
--   {ttl}  that hold is gone; ttl of the lock in ms, -2: it is free

if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then -- a repeat leaves the count alone
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
    return {redis.call('PTTL', KEYS[1])}
  end
  redis.call('HSET', KEYS[1], ARGV[2], '1')
end
local lease = tonumber(ARGV[3])
if KEYS[2] and redis.call('PTTL', KEYS[2]) < lease then
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
end
if redis.call('PTTL', KEYS[1]) < lease then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
