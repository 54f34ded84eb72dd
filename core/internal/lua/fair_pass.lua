-- Hands a fair lock on from one hold to a waiter, if that is the first in the queue; or else frees it and tells the first.
--
-- KEYS     see fair_queue.lua, also for the first of ARGV
-- ARGV[7]  wire owner of the hold that goes
-- ARGV[8]  lease of the hold that comes, ms
-- ARGV[9]  wire owner of the waiter
--
-- Reply: 1, handed on; -1, freed; 0, the hold that goes is gone already, and the waiter does not have the lock.

local from, to = ARGV[7], ARGV[9]
if redis.call('HEXISTS', KEYS[1], from) == 0 then
  if redis.call('HEXISTS', KEYS[1], to) == 0 then
    return 0
  end
  -- This is a repeat: whoever has lost the first reply counts the lease from now on.
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[8]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[8])
  end
  return 1
end

local first = head()
if first == to then
  -- The first write needs no memory: after it Redis refuses none, also when its memory is full.
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  redis.call('HSET', KEYS[1], to, '1')
  redis.call('HDEL', KEYS[1], from)
  leave(to)
  return 1
end

redis.call('HDEL', KEYS[1], from)
if first then
  summon(first)
end
return -1
