-- Prolongs the permits of a hold, if the new lease is longer than the rest of the old one.
--
-- KEYS[1]  permits that are taken
-- ARGV[1]  wire owner
-- ARGV[2]  number of its permits
-- ARGV[3]  lease, ms; 0 leaves the expiry unchanged
--
-- Reply:
--   1  done
--   0  the hold is gone

local owner, count, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = clock()
if missing(KEYS[1], owner, count, now) > 0 then
  return 0
end

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. ZREM needs none. No id is empty.
redis.call('ZREM', KEYS[1], '')
if lease > 0 then
  take(KEYS[1], owner, count, now + lease)
end
outlast(KEYS[1], lease)
return 1
