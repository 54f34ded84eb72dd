-- Returns the state of a lock.
--
-- KEYS[1]  lock hash
-- ARGV[1]  field of a wire owner, or an empty string
--
-- Reply: {fields, ttl, count, mode}
--   fields  number of fields in the hash
--   ttl     ms; -2: no key; -1: never expires
--   count   hold count of the given field
--   mode    of a read/write lock; otherwise an empty string

return {
  redis.call('HLEN', KEYS[1]),
  redis.call('PTTL', KEYS[1]),
  tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0),
  redis.call('HGET', KEYS[1], 'mode') or '',
}
