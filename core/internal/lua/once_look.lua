-- Returns the record of a name without taking the lock.
--
-- KEYS[1]  lock hash
-- KEYS[2]  record hash
--
-- Reply:
--   record  a string
--   {ttl}   no record, or the lock is held; ttl of the lock in ms, -1: never expires, -2: not held

local ttl = redis.call('PTTL', KEYS[1])
return ttl == -2 and redis.call('HGET', KEYS[2], 'record') or {ttl}
