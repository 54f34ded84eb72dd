-- Takes the write side of a read/write lock for a new hold, or repeats a take whose reply was lost.
--
-- KEYS[1]  lock hash
-- KEYS[2]  of a fenced handle: counter of fencing tokens. Each grant, a repeat too, draws one; see
--          fenced_draw.lua, which stands before this script then
-- ARGV[1]  write field of the wire owner
-- ARGV[2]  lease, ms
--
-- Reply:
--   1          granted without a counter
--   token      granted with a counter; a number, or a string of its digits
--   {ttl}      held by another owner; ttl in ms, -1: never expires
--   WRONGKIND  error: the key is another kind of lock

local mode = redis.call('HGET', KEYS[1], 'mode')
local ttl = redis.call('PTTL', KEYS[1])

if mode and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {ttl}
end
if not mode and ttl ~= -2 then
  return redis.error_reply('WRONGKIND the key is not a read/write lock')
end

local token = KEYS[2] and draw(KEYS[2]) or 1
if redis.call('HSETNX', KEYS[1], ARGV[1], '1') == 1 then -- a repeat leaves the count alone
  redis.call('HSET', KEYS[1], 'mode', 'write')
end
if ttl < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return token
