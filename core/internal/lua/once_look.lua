-- Returns the record that stands under a name, and takes nothing.
--
-- KEYS[1]  lock hash
-- KEYS[2]  record hash
--
-- Reply: a string, the record; {ttl}, there is none, or somebody holds the lock for ttl more ms (-1: without end; -2: nobody does).

local ttl = redis.call('PTTL', KEYS[1])
return ttl == -2 and redis.call('HGET', KEYS[2], 'record') or {ttl}
