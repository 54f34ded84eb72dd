-- Prolongs the permits of a hold, if the new lease is longer than the rest of the old one.
--
-- KEYS[1]  permits that are taken
-- KEYS[2]  of a guest: family; see permit_enter.lua
-- ARGV[1]  wire owner that took the permits
-- ARGV[2]  number of permits
-- ARGV[3]  lease, ms; 0 leaves the expiry unchanged
-- ARGV[4]  of a guest: its wire owner
--
-- Reply:
--   1  done
--   0  the hold is gone

local owner, count, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = clock()
if missing(KEYS[1], owner, count, now) > 0 or KEYS[2] and not lives(KEYS[2], ARGV[4], now) then
  return 0
end

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. ZREM needs none. No id is empty.
redis.call('ZREM', KEYS[1], '')
if lease > 0 then
  take(KEYS[1], owner, count, now + lease)
  if KEYS[2] then
    redis.call('ZADD', KEYS[2], 'GT', string.format('%d', now + lease), ARGV[4])
    outlast(KEYS[2], lease)
  end
end
outlast(KEYS[1], lease)
return 1
