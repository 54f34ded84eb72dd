-- Frees a hold without a record, removes what its grant has marked, and publishes the release. A
-- record stays, and so do the marks of another hold. A hold that is gone was lost, perhaps during
-- its work, so its marks stay unless its caller knows that no work was left undone. release is
-- release.lua, as a function of its KEYS and ARGV.
--
-- KEYS[1]  lock hash
-- KEYS[2]  record hash
-- ARGV[1]  wire owner
-- ARGV[2]  1: remove the marks even if the hold is gone; 0: only with the hold
-- ARGV[3]  1: remove the binding too, if this hold has made it; 0: only the marker
-- ARGV[4]  how long no one is to renew a stale record from now on, ms
-- ARGV[5]  channel
-- ARGV[6]  message
-- ARGV[7..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1  freed
--   0  the hold was gone

local by = redis.call('HMGET', KEYS[2], 'marker', 'binder', 'stale')
local freed = release({KEYS[1]}, {ARGV[1], unpack(ARGV, 5)}) > 0
if freed or ARGV[2] == '1' then
  if by[1] == ARGV[1] then
    redis.call('HDEL', KEYS[2], 'record', 'marker', 'ttl')
  end
  if ARGV[3] == '1' and by[2] == ARGV[1] then
    redis.call('HDEL', KEYS[2], 'bound', 'binder')
  end
end
if freed and by[3] and ARGV[4] ~= '0' then
  local left = redis.call('PTTL', KEYS[2]) - ARGV[4]
  redis.call('HSET', KEYS[2], 'stale', math.max(0, math.min(left, tonumber(by[3]))))
end
return freed and 1 or 0
