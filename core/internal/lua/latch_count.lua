-- Returns the count of a latch.
--
-- KEYS[1]  count: a string
--
-- Reply:
--   count      a string of digits; 0: there is none
--   WRONGKIND  error: the key is no count

local count = redis.call('GET', KEYS[1]) or '0'
if #count > 18 or not string.find(count, '^%-?%d+$') then
  return redis.error_reply('WRONGKIND the key is not the count of a latch')
end
return count
