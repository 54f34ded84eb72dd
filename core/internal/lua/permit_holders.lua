-- Returns the permits that are taken.
--
-- KEYS[1]  permits that are taken
--
-- Reply: their ids, without those that have expired.

return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%d', clock()), '+inf')
