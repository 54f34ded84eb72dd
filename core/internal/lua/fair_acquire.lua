-- Takes a fair lock for a new hold if no other waiter is first in the queue, or repeats a take
-- whose reply was lost, or else queues up.
--
-- KEYS      see fair_queue.lua, also for ARGV[1] to ARGV[7]
-- KEYS[4]   of a fenced handle: counter of fencing tokens. Each grant, a repeat too, draws one; see
--           fenced_draw.lua, which stands before this script then
-- ARGV[8]   wire owner
-- ARGV[9]   lease, ms
-- ARGV[10]  last moment to queue up, ms of the server's clock; 0: do not queue up
-- ARGV[11]  how soon to look again at a first waiter that does not take the free lock, ms
--
-- Reply:
--   1                   granted without a counter
--   token               granted with a counter; a number, or a string of its digits
--   {ttl, now, place}   refused; nothing changes for ttl ms unless a message comes (-1: never);
--                       the server's clock, ms, as text: an embedded Redis on a machine with 32
--                       bits has no larger integers; the owner's place in the queue, from 1,
--                       exact among the first 100; 0: it is not in the queue
--   WRONGKIND           error: the key is a read/write lock

local owner, lease = ARGV[8], tonumber(ARGV[9])
local first, deadline = head(owner)
local ttl = redis.call('PTTL', KEYS[1])

if ttl ~= -2 then
  local held = redis.call('HMGET', KEYS[1], owner, 'mode')
  if held[1] then
    local token = KEYS[4] and draw(KEYS[4]) or 1
    if ttl < lease then
      redis.call('PEXPIRE', KEYS[1], ARGV[9])
    end
    return token
  elseif held[2] then
    return redis.error_reply('WRONGKIND the key is a read/write lock')
  end
end

-- Gives a first waiter that hears that its turn has come little time to take the free lock.
local function hurry()
  redis.pcall('HDEL', absentees, first)
  if deadline > now + grace then
    deadline = now + grace
    redis.call('ZADD', KEYS[3], deadline, first)
  end
end

-- The lock is free, but another waiter is first. It has missed its message, or it is dead or frozen.
-- It hears that its turn has come. A dead waiter has no listener, now and in later checks. A frozen
-- one has, and leaves the lock alone.
local pause
if ttl == -2 and first and first ~= owner then
  local listeners, empty, dead = tell(first), false, first
  if listeners == 0 and ARGV[7] == '1' then
    pause, empty = sweep(first, owner)
  end
  if empty then
    first = nil
  elseif pause then
    pause = math.min(pause, tonumber(ARGV[11]))
    first, deadline = head(owner)
    if first and first ~= dead and first ~= owner and (tell(first) or 0) > 0 then
      hurry()
    end
  elseif listeners then
    hurry()
  end
end

if ttl == -2 and (not first or first == owner) then
  local token = KEYS[4] and draw(KEYS[4]) or 1
  redis.call('HSET', KEYS[1], owner, '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[9])
  if first then
    leave({owner})
  else
    clear()
  end
  return token
end

-- A waiter that tries is alive: it is not absent, and it must not lose its place to a lock that is
-- held for long.
local noted = redis.pcall('HGET', absentees, 'next')
local mine = redis.call('ZSCORE', KEYS[3], owner)
local place, exact = find(owner, mine)
if place then
  local due = now + (place + 1) * budget
  if not mine or mine - due < -budget / 2 or exact and mine - due > budget / 2 then
    redis.call('ZADD', KEYS[3], due, owner)
  end
  if type(noted) == 'string' then
    redis.pcall('HDEL', absentees, owner)
    if tonumber(noted) >= 0 and not pause and sweep(owner, owner) == 0 then
      pause = 0 -- the dead are not all known yet
    end
  end
elseif now <= tonumber(ARGV[10]) then
  local places = redis.call('RPUSH', KEYS[2], owner)
  redis.call('ZADD', KEYS[3], now + math.max(ttl, 0) + places * budget, owner)
  place = places - 1
end

if ttl == -2 then
  ttl = pause or deadline and deadline - now or 0
end
return {ttl, string.format('%.0f', now), place and place + 1 or 0}
