-- Takes a fair lock for a hold that is new, if nobody else is first in the queue; or repeats the take of one whose reply
-- was lost; or else queues up.
--
-- KEYS      see fair_queue.lua, also for the first of ARGV
-- ARGV[7]   wire owner
-- ARGV[8]   lease, ms
-- ARGV[9]   when to queue up at the latest, ms of the server's clock; 0: do not
-- ARGV[10]  how soon to look again for one that is absent, ms
--
-- Reply: 1, granted; {ttl, now, queued}, not granted: nothing changes for ttl ms unless a message comes (-1: without end); the
-- server's clock; 1 if it stands in the queue; or the error WRONGKIND, the key is a read/write lock.

local owner, lease = ARGV[7], tonumber(ARGV[8])
local first, deadline = head()
local ttl = redis.call('PTTL', KEYS[1])

if ttl ~= -2 then
  local held = redis.call('HMGET', KEYS[1], owner, 'mode')
  if held[1] then
    if ttl < lease then
      redis.call('PEXPIRE', KEYS[1], ARGV[8])
    end
    return 1
  elseif held[2] then
    return redis.error_reply('WRONGKIND the key is a read/write lock')
  end
end

-- The lock is free and it is another's turn. It may have missed the message of that, or may be dead: then nobody listens for it, now
-- and when that is looked at again. Those who are dead leave together, if they were absent together.
local absent = false
if ttl == -2 and first and first ~= owner then
  local gone, looked, place, waiter = {}, {}, 0, first
  while waiter and waiter ~= owner and place < 64 do
    local silent = summon(waiter)
    if not silent then
      forget(looked) -- what is noted of those behind it is out of date when it is their turn
      break
    end
    absent, looked[waiter] = true, true
    if silent >= grace and #gone == place then
      table.insert(gone, waiter)
    end
    place = place + 1
    waiter = redis.call('LINDEX', KEYS[2], place)
  end
  for _, dead in ipairs(gone) do
    if not leave(dead) then
      first = nil
    end
  end
  if #gone > 0 and first then
    first, deadline = head()
  end
end

if ttl == -2 and (not first or first == owner) then
  redis.call('HSET', KEYS[1], owner, '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  if first then
    leave(owner)
  else
    redis.pcall('DEL', KEYS[3])
  end
  return 1
end

local mine = redis.call('ZSCORE', KEYS[3], owner)
local place = (mine or ARGV[9] ~= '0') and redis.call('LPOS', KEYS[2], owner)
if place then
  -- Whoever still asks is alive. A lock that is held for long must not cost it its place: each of those before it takes a budget
  -- off when it leaves.
  local before = place * budget
  if not mine or mine - now < before + budget / 2 then
    redis.call('ZADD', KEYS[3], now + before + budget, owner)
  end
elseif now <= tonumber(ARGV[9]) then
  local last = redis.call('LINDEX', KEYS[2], -1)
  local before = last and redis.call('ZSCORE', KEYS[3], last) or now + math.max(ttl, 0)
  -- The last may have been silent for so long that its time is nearly over. When it leaves it takes a budget off, and one must
  -- be left.
  local ahead = redis.call('RPUSH', KEYS[2], owner) - 1
  redis.call('ZADD', KEYS[3], math.max(before, now + ahead * budget) + budget, owner)
  place = true
end

if ttl == -2 then
  ttl = absent and tonumber(ARGV[10]) or deadline and deadline - now or 0
end
return {ttl, now, place and 1 or 0}
