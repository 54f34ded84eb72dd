-- Takes a plain lock for a new hold, or repeats a take whose reply was lost.
--
-- KEYS[1]  lock hash
-- KEYS[2]  of a fenced handle: counter of fencing tokens. Each grant, a repeat too, draws one; see
--          fenced_draw.lua, which stands before this script then. A token whose reply was lost is
--          skipped
-- ARGV[1]  wire owner
-- ARGV[2]  lease, ms
--
-- Reply:
--   1          granted without a counter
--   token      granted with a counter; a number, or a string of its digits
--   {ttl}      held by another owner; ttl in ms, -1: never expires
--   WRONGKIND  error: the key is a read/write lock

local ttl = redis.call('PTTL', KEYS[1])

if ttl ~= -2 then
  local held = redis.call('HMGET', KEYS[1], ARGV[1], 'mode')
  if not held[1] then
    return held[2] and redis.error_reply('WRONGKIND the key is a read/write lock') or {ttl}
  end
end

local token = KEYS[2] and draw(KEYS[2]) or 1
if ttl == -2 then -- a repeat leaves the count alone
  redis.call('HSET', KEYS[1], ARGV[1], '1')
end
if ttl < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return token
