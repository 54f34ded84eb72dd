-- Hands a fair lock on from one hold to a waiter, if that is the first in the queue; or else frees it and tells the first.
-- See pass_repeat.lua for what comes first.
--
-- KEYS      see fair_queue.lua
-- ARGV[1]   wire owner of the hold that goes
-- ARGV[2]   wire owner of the waiter
-- ARGV[3]   lease of the hold that comes, ms
-- ARGV[4]   how much sooner those behind the waiter are overdue when it leaves the queue, ms
-- ARGV[5]   what precedes the first one's wire owner in the name of its channel
-- ARGV[6]   message
-- ARGV[7..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: 1, handed on; -1, freed; 0, the hold that goes is gone already, and the waiter does not have the lock.

local first = head()
if first == ARGV[2] then
  shift(redis.call('LRANGE', KEYS[2], 1, -1), -tonumber(ARGV[4]))
  redis.call('ZREM', KEYS[3], first)
  redis.call('LPOP', KEYS[2])
  redis.call('HSET', KEYS[1], first, '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 1
end

redis.call('HDEL', KEYS[1], ARGV[1])
if first then
  for i = 7, #ARGV do
    redis.pcall(ARGV[i], ARGV[5] .. first, ARGV[6])
  end
end
return -1
