-- Takes the read side of a read/write lock for a new hold, or repeats a take whose reply was lost.
--
-- KEYS[1]  lock hash
-- KEYS[2]  time-out key of the hold's first read level
-- ARGV[1]  wire owner
-- ARGV[2]  lease, ms
--
-- Reply:
--   1          granted
--   {ttl}      held by a writer; ttl in ms, -1: never expires
--   WRONGKIND  error: the key is another kind of lock

local mode = redis.call('HGET', KEYS[1], 'mode')

if mode == 'write' then
  return {redis.call('PTTL', KEYS[1])}
end
if not mode and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGKIND the key is not a read/write lock')
end

if redis.call('HSETNX', KEYS[1], ARGV[1], '1') == 1 then
  redis.call('HSET', KEYS[1], 'mode', 'read')
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
elseif redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then
  -- A repeat leaves the count alone, because the owner may have re-entered since.
  redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
