-- Tells who holds a lock.
--
-- KEYS[1]  lock hash
--
-- Reply: the wire owners; none, if nobody does.

return redis.call('HKEYS', KEYS[1])
