-- Hands a fenced lock on from one hold to another; see fenced_draw.lua. A repeat draws another token.
--
-- KEYS[1]  lock hash
-- KEYS[2]  counter of fencing tokens
-- ARGV[1]  wire owner of the hold that goes
-- ARGV[2]  wire owner of the hold that comes
-- ARGV[3]  lease of the latter, ms
--
-- Reply: the token, or its digits, done; 0, the hold that goes is gone already.

local repeated = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0
if repeated and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return 0
end

-- The first write needs no memory: after it Redis refuses none, also when its memory is full. Of a repeat the lease is counted from
-- that on.
if not repeated or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
local token = draw(KEYS[2])
if not repeated then
  redis.call('HSET', KEYS[1], ARGV[2], '1')
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return token
