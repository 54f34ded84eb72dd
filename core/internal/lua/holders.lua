-- Returns the holders of a lock.
--
-- KEYS[1]  lock hash
--
-- Reply: the fields of the hash, which are the wire owners, and for a read/write lock also 'mode'.
-- Empty if the lock is free.

return redis.call('HKEYS', KEYS[1])
