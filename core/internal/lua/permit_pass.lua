-- Hands the permits of a hold over to another one. They are never free in between. If there are fewer
-- permits than are taken, or if the number of free ones was lost, frees them instead: then only an
-- acquire knows how many there may be. If the old hold has lost one of its permits, the others are
-- free, too.
--
-- KEYS[1]   number of free permits
-- KEYS[2]   permits that are taken
-- ARGV[1]   old wire owner
-- ARGV[2]   new wire owner
-- ARGV[3]   lease of the new hold, ms
-- ARGV[4]   number of permits
-- ARGV[5]   channel
-- ARGV[6..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1   handed over
--   -1  freed instead
--   0   the old hold is gone, and the new one does not exist

local taken, from, to, count = KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[4])
local lease = tonumber(ARGV[3])
local now = clock()
local expiry = now + lease

local lacks = missing(taken, from, count, now)
if lacks > 0 then
  if missing(taken, to, count, now) == 0 then -- an earlier try has handed over
    take(taken, to, count, expiry)
    outlast(taken, lease)
    return 1
  end
  if lacks < count then
    announce(KEYS[1], drop(taken, from, count), 5)
  end
  return 0
end
if (number(KEYS[1]) or -1) < 0 then
  announce(KEYS[1], drop(taken, from, count), 5)
  return -1
end

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. ZREM needs none. No id is empty. A key without members would lose its TTL, so the old ones
-- leave last.
redis.call('ZREM', taken, '')
take(taken, to, count, expiry)
drop(taken, from, count)
outlast(taken, lease)
return 1
