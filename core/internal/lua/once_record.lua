-- Leaves a record with the release of a hold, in one step. The hold must be there: whoever has lost the lock leaves nothing.
--
-- KEYS[1]   lock hash
-- KEYS[2]   record hash
-- ARGV[1]   wire owner
-- ARGV[2]   hold count that is left; 0: the lock is freed, and announced
-- ARGV[3]   record
-- ARGV[4]   time to live of the record, ms
-- ARGV[5]   channel
-- ARGV[6]   message
-- ARGV[7..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: 1, done; 0, the hold is gone, and has not left its record when it went.

local last = ARGV[2] == '0'

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  -- A repeat finds what the first try has left.
  return (last and redis.call('HGET', KEYS[2], 'owner') == ARGV[1]) and 1 or 0
end

redis.call('HSET', KEYS[2], 'record', ARGV[3], 'owner', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('HDEL', KEYS[2], 'marker')

if not last then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  return 1
end
redis.call('HDEL', KEYS[1], ARGV[1])
for i = 7, #ARGV do
  redis.pcall(ARGV[i], ARGV[5], ARGV[6])
end
return 1
