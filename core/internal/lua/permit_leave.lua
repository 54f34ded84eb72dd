-- Removes an owner from the family of permits, and frees them if it was the last. See also
-- permit_enter.lua.
--
-- KEYS[1]   number of free permits
-- KEYS[2]   permits that are taken
-- KEYS[3]   family
-- ARGV[1]   wire owner that took the permits
-- ARGV[2]   number of permits
-- ARGV[3]   wire owner that leaves
-- ARGV[4]   channel
-- ARGV[5..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   0      the hold was gone
--   1 + n  it has left; n clients received the message that permits are free

local owner, leaver = ARGV[1], ARGV[3]
local left = redis.call('ZREM', KEYS[3], leaver)
if left == 0 and leaver ~= owner then
  return 0
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%d', clock()))
local others = redis.call('ZCARD', KEYS[3])
if others == 1 and redis.call('ZSCORE', KEYS[3], owner) then
  redis.call('DEL', KEYS[3]) -- the last guest has left
end
if others > 0 then
  return left
end
local freed = drop(KEYS[2], owner, tonumber(ARGV[2]))
if freed == 0 then
  return 0
end
return 1 + announce(KEYS[1], freed, 4)
