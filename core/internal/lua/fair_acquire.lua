-- Takes a fair lock for a new hold if no other waiter is first in the queue, or repeats a take
-- whose reply was lost, or else queues up.
--
-- KEYS      see fair_queue.lua, also for ARGV[1] to ARGV[6]
-- ARGV[7]   wire owner
-- ARGV[8]   lease, ms
-- ARGV[9]   last moment to queue up, ms of the server's clock; 0: do not queue up
-- ARGV[10]  how soon to check an absent waiter again, ms
--
-- Reply:
--   1                   granted
--   {ttl, now, queued}  refused; nothing changes for ttl ms unless a message comes (-1: never);
--                       the server's clock, ms, as text: an embedded Redis on a machine with 32
--                       bits has no larger integers; 1 if the owner is in the queue
--   WRONGKIND           error: the key is a read/write lock

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

-- The lock is free, but another waiter is first. It has missed its message, or it is dead. A dead
-- waiter has no listener, now and in later checks. Notify the waiters in order, up to the first
-- that has a listener or cannot be checked. Drop all waiters before it that have been absent for
-- long enough.
local absent = false
if ttl == -2 and first and first ~= owner then
  local gone, looked, place, waiter = {}, {}, 0, first
  while waiter and waiter ~= owner and place < 64 do
    local silent = summon(waiter)
    if not silent then
      forget(looked) -- notes on waiters behind it will be outdated when their turn comes
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
    clear()
  end
  return 1
end

local mine = redis.call('ZSCORE', KEYS[3], owner)
local place = (mine or ARGV[9] ~= '0') and redis.call('LPOS', KEYS[2], owner)
if place then
  -- A waiter that tries is alive, so it must not lose its place to a lock that is held for long.
  -- Each waiter before it takes one budget off its deadline by leaving.
  local before = place * budget
  if not mine or mine - now < before + budget / 2 then
    redis.call('ZADD', KEYS[3], now + before + budget, owner)
  end
elseif now <= tonumber(ARGV[9]) then
  local last = redis.call('LINDEX', KEYS[2], -1)
  local before = last and redis.call('ZSCORE', KEYS[3], last) or now + math.max(ttl, 0)
  -- The last waiter's time may be nearly over, because it has been silent. When it leaves, it takes
  -- a budget off the waiters behind it, and one budget must be left.
  local ahead = redis.call('RPUSH', KEYS[2], owner) - 1
  redis.call('ZADD', KEYS[3], math.max(before, now + ahead * budget) + budget, owner)
  place = true
end

if ttl == -2 then
  ttl = absent and tonumber(ARGV[10]) or deadline and deadline - now or 0
end
return {ttl, string.format('%.0f', now), place and 1 or 0}
