-- Takes a fair lock for a hold that is new, if nobody else is first in the queue; or repeats the take of one whose reply
-- was lost; or else queues up.
--
-- KEYS      see fair_queue.lua
-- ARGV[1]   wire owner
-- ARGV[2]   lease, ms
-- ARGV[3]   how long the first in the queue may be silent before others drop it, ms
-- ARGV[4]   when to queue up at the latest, ms of the server's clock; 0: do not
--
-- Reply: 1, granted; {ttl, now, queued}, not granted: nothing changes for ttl ms unless a message comes (-1: without end); the
-- server's clock; 1 if it stands in the queue; or the error WRONGKIND, the key is a read/write lock.

local owner, lease, budget = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local first, deadline = head()
local ttl = redis.call('PTTL', KEYS[1])

if ttl ~= -2 then
  local held = redis.call('HMGET', KEYS[1], owner, 'mode')
  if held[1] then
    if ttl < lease then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
    end
    return 1
  elseif held[2] then
    return redis.error_reply('WRONGKIND the key is a read/write lock')
  end
end

if ttl == -2 and (not first or first == owner) then
  if first then
    shift(redis.call('LRANGE', KEYS[2], 1, -1), -budget)
    redis.call('ZREM', KEYS[3], owner)
    redis.call('LPOP', KEYS[2])
  end
  redis.call('HSET', KEYS[1], owner, '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end

local mine = redis.call('ZSCORE', KEYS[3], owner)
if mine then
  -- Whoever still asks is alive. A lock that is held for long must not cost it its place: each of those before it takes a budget
  -- off when it leaves.
  local before = (redis.call('LPOS', KEYS[2], owner) or 0) * budget
  if mine - now < before + budget / 2 then
    redis.call('ZADD', KEYS[3], now + before + budget, owner)
  end
elseif now <= tonumber(ARGV[4]) then
  local last = redis.call('LINDEX', KEYS[2], -1)
  local before = last and redis.call('ZSCORE', KEYS[3], last) or now + math.max(ttl, 0)
  redis.call('ZADD', KEYS[3], before + budget, owner)
  redis.call('RPUSH', KEYS[2], owner)
  mine = true
end

if ttl == -2 then
  ttl = deadline and deadline - now or 0
end
return {ttl, now, mine and 1 or 0}
