-- Counts a member for some time, unless as many others are counted.
--
-- KEYS[1]  sorted set: the members, by when they stop counting, ms since the epoch
-- ARGV[1]  member
-- ARGV[2]  how many may count at a time
-- ARGV[3]  how long the member counts from now, ms
--
-- Reply:
--   1  counted, now or before
--   0  too many others count

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
