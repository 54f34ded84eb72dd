-- Takes a plain lock for a hold that is new, or repeats the take of one whose reply was lost.
--
-- KEYS[1]  lock hash
-- ARGV[1]  wire owner
-- ARGV[2]  lease, ms
--
-- Reply: 1, granted; {ttl}, held by somebody else for ttl more ms (-1: without end).

local ttl = redis.call('PTTL', KEYS[1])

if ttl == -2 then
  redis.call('HSET', KEYS[1], ARGV[1], '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {ttl}
end

if ttl < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
