-- Returns how many permits a semaphore has.
--
-- KEYS[1]  number of free permits
-- KEYS[2]  permits that are taken
-- KEYS[3]  declaration
--
-- Reply:
--   {permits, taken}  permits is -1 if nothing is known. A permit that has expired is not taken
--   WRONGKIND         error: the key is no semaphore

local free, wrong = number(KEYS[1])
if wrong then
  return redis.error_reply('WRONGKIND the key is no semaphore')
end
local permits
if free then
  permits = free + redis.call('ZCARD', KEYS[2])
else
  permits = tonumber(string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) ') or -1)
end
return {permits, redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%d', clock()), '+inf')}
