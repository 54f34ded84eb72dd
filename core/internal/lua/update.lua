-- Sets the count of a hold, and prolongs its TTL if the new lease is longer than the rest of the
-- old one. The hold must exist. Re-entry, partial release and extension use this script.
--
-- KEYS[1]  lock hash
-- ARGV[1]  wire owner
-- ARGV[2]  hold count
-- ARGV[3]  lease, ms; 0 leaves the TTL unchanged
--
-- Reply:
--   1  done
--   0  the hold is gone

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. HDEL needs none. No field has an empty name.
redis.call('HDEL', KEYS[1], '')
local lease = tonumber(ARGV[3])
if lease > 0 and redis.call('PTTL', KEYS[1]) < lease then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
