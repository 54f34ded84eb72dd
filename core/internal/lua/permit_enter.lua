-- Lets a guest use the permits of a hold, or repeats an entry whose reply was lost. The number of
-- free permits stays as it is.
--
-- KEYS[1]  permits that are taken
-- KEYS[2]  family: sorted set of the owners that use the permits, by when the lease of each ends.
--          The lease of the owner that took them is that of the permits, so it has no end here.
--          Without guests there is no family
-- ARGV[1]  wire owner that took the permits
-- ARGV[2]  number of permits
-- ARGV[3]  wire owner of the hold that it is the guest of
-- ARGV[4]  wire owner of the guest
-- ARGV[5]  lease, ms
--
-- Reply:
--   1     entered
--   {-1}  that hold is gone

local owner, count, host, guest = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local now, lease = clock(), tonumber(ARGV[5])
local alone = redis.call('EXISTS', KEYS[2]) == 0
local invited = alone and host == owner or lives(KEYS[2], host, now) or lives(KEYS[2], guest, now)
if not invited or missing(KEYS[1], owner, count, now) > 0 then
  return {-1}
end
if alone then
  redis.call('ZADD', KEYS[2], '9000000000000000', owner)
  redis.call('PEXPIRE', KEYS[2], 2 * lease)
end
redis.call('ZADD', KEYS[2], 'GT', string.format('%d', now + lease), guest)
take(KEYS[1], owner, count, now + lease)
outlast(KEYS[1], lease)
outlast(KEYS[2], lease)
return 1
