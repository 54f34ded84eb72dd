-- Stores a record and lowers the count of a hold, or frees the hold, in one step. The hold must
-- exist: an owner that has lost the lock stores nothing. release is release.lua, as a function of
-- its KEYS and ARGV.
--
-- KEYS[1]   lock hash
-- KEYS[2]   record hash
-- ARGV[1]   wire owner
-- ARGV[2]   new hold count; 0 frees the hold and publishes the release
-- ARGV[3]   record
-- ARGV[4]   TTL of the record, ms
-- ARGV[5]   at the end of that, how long it is stale, ms; 0: it never is
-- ARGV[6]   channel
-- ARGV[7]   message
-- ARGV[8..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1  done, now or by an earlier attempt
--   0  the hold is gone, and its record was not stored

local last = ARGV[2] == '0'

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  -- A repeat finds the record of the first attempt.
  return (last and redis.call('HGET', KEYS[2], 'owner') == ARGV[1]) and 1 or 0
end

redis.call('HSET', KEYS[2], 'record', ARGV[3], 'owner', ARGV[1], 'ttl', ARGV[4])
if ARGV[5] ~= '0' then
  redis.call('HSET', KEYS[2], 'stale', ARGV[5])
end
-- The binding of an earlier hold, which may have done something, must not go before its time.
local binder = redis.call('HGET', KEYS[2], 'binder')
redis.call('HDEL', KEYS[2], 'marker', last and 'binder' or '', ARGV[5] == '0' and 'stale' or '')
if not binder or binder == ARGV[1] or redis.call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end

if not last then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  return 1
end
release({KEYS[1]}, {ARGV[1], unpack(ARGV, 6)})
return 1
