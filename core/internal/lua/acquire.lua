-- Takes a plain lock for a new hold, or repeats a take whose reply was lost.
--
-- KEYS[1]  lock hash
-- ARGV[1]  wire owner
-- ARGV[2]  lease, ms
--
-- Reply:
--   1          granted
--   {ttl}      held by another owner; ttl in ms, -1: never expires
--   WRONGKIND  error: the key is a read/write lock

local ttl = redis.call('PTTL', KEYS[1])

if ttl == -2 then
  redis.call('HSET', KEYS[1], ARGV[1], '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end

local held = redis.call('HMGET', KEYS[1], ARGV[1], 'mode')
if not held[1] then
  return held[2] and redis.error_reply('WRONGKIND the key is a read/write lock') or {ttl}
end

if ttl < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
