-- Tells how a lock stands.
--
-- KEYS[1]  lock hash
-- ARGV[1]  field of a wire owner, or an empty string
--
-- Reply: {fields, ttl in ms (-2: no key, -1: no end), hold count of the field, mode of a read/write lock or an empty string}

return {
  redis.call('HLEN', KEYS[1]),
  redis.call('PTTL', KEYS[1]),
  tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0),
  redis.call('HGET', KEYS[1], 'mode') or '',
}
