-- Takes a fenced lock for a new hold, or repeats a take whose reply was lost. Each attempt that
-- finds the lock free, or held by its own wire owner, draws a token. A token whose reply was lost
-- is skipped. No token is given twice; see fenced_draw.lua.
--
-- KEYS[1]  lock hash
-- KEYS[2]  counter of fencing tokens
-- ARGV[1]  wire owner
-- ARGV[2]  lease, ms
--
-- Reply:
--   token      granted; a number, or a string of its digits
--   {ttl}      held by another owner; ttl in ms, -1: never expires
--   WRONGKIND  error: the key is a read/write lock

local ttl = redis.call('PTTL', KEYS[1])

if ttl ~= -2 then
  local held = redis.call('HMGET', KEYS[1], ARGV[1], 'mode')
  if not held[1] then
    return held[2] and redis.error_reply('WRONGKIND the key is a read/write lock') or {ttl}
  end
end

local token = draw(KEYS[2])
redis.call('HSETNX', KEYS[1], ARGV[1], '1') -- a repeat leaves the count alone
if ttl < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return token
