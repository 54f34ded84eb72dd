-- Sets how many permits a semaphore has, and keeps that for ever.
--
-- KEYS[1]   number of free permits
-- KEYS[2]   permits that are taken
-- KEYS[3]   declaration
-- ARGV[1]   number of permits
-- ARGV[2]   channel
-- ARGV[3..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1          done
--   WRONGKIND  error: the key is no semaphore

local _, wrong = number(KEYS[1])
if wrong then
  return redis.error_reply('WRONGKIND the key is no semaphore')
end
local now = clock()
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('SET', KEYS[1], ARGV[1] - redis.call('ZCARD', KEYS[2]))
redis.call('SET', KEYS[3], string.format('%s %d', ARGV[1], now))
redis.call('PERSIST', KEYS[2])
announce(KEYS[1], 0, 2)
return 1
