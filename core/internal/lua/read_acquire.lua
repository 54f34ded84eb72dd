-- Takes the read side of a read/write lock for a hold that is new, or repeats the take of one whose reply was lost.
--
-- KEYS[1]  lock hash
-- KEYS[2]  time-out key of the hold's first level
-- ARGV[1]  wire owner
-- ARGV[2]  lease, ms
--
-- Reply: 1, granted; {ttl}, a writer has it for ttl more ms (-1: without end); the error WRONGKIND, the key is a lock of
-- another kind.

local mode = redis.call('HGET', KEYS[1], 'mode')

if mode == 'write' then
  return {redis.call('PTTL', KEYS[1])}
end
if not mode and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGKIND the key is a lock without sides')
end

if redis.call('HSETNX', KEYS[1], ARGV[1], '1') == 1 then
  redis.call('HSET', KEYS[1], 'mode', 'read')
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
elseif redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then
  -- A repeat leaves the count alone: the owner may have entered again since.
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
