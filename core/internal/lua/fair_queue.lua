-- What every script of a fair lock begins with. Not a script of its own.
--
-- KEYS[1]  lock hash
-- KEYS[2]  queue, a list of wire owners
-- KEYS[3]  deadlines of the wire owners in the queue, a sorted set, ms of the server's clock
-- ARGV[1]  how long a waiter may be silent before others drop it, ms
-- ARGV[2]  how long nobody may listen for a waiter, while the lock is free and it is its turn, before others drop it, ms; 0: that
--          is not to be known here
-- ARGV[3]  what precedes a waiter's wire owner in the name of its channel
-- ARGV[4]  message
-- ARGV[5]  command to publish with: PUBLISH or SPUBLISH
-- ARGV[6]  another one, or an empty string
--
-- Queue and deadlines hold the same owners. Where one of the keys was lost, each script mends what it meets: an owner at the head
-- gets a deadline, one that asks gets back its place or its deadline, and deadlines without a queue are deleted.
--
-- Beside them there may be KEYS[3] .. ':absent', a hash of waiters for whom nobody was listening when it was their turn, and since
-- when, ms of the server's clock. It is not among the KEYS, since it is hardly ever there: in a slot on its way to another
-- node that would be an error. It ends by itself.

local budget, grace = tonumber(ARGV[1]), tonumber(ARGV[2])
local absentees = KEYS[3] .. ':absent'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Tells a waiter to look. Returns how many listen for it; nil: not known.
local function tell(owner)
  local listeners = 0
  for i = 5, 6 do
    if ARGV[i] ~= '' then
      local n = redis.pcall(ARGV[i], ARGV[3] .. owner, ARGV[4])
      listeners = listeners and type(n) == 'number' and listeners + n or nil
    end
  end
  return grace > 0 and listeners or nil
end

-- Tells a waiter that it is its turn, and returns for how long nobody has been listening for it; nil: it is not known to be absent.
local function summon(owner)
  if tell(owner) ~= 0 then
    redis.pcall('HDEL', absentees, owner)
    return nil
  end
  local since = redis.pcall('HGET', absentees, owner)
  if type(since) ~= 'string' then
    since = now
    redis.pcall('HSET', absentees, owner, since)
    redis.pcall('PEXPIRE', absentees, 60000)
  end
  return now - since
end

-- Forgets for how long waiters have been absent, but for some.
local function forget(others)
  local noted = redis.pcall('HKEYS', absentees)
  for _, owner in ipairs(noted) do
    if not others[owner] then
      redis.pcall('HDEL', absentees, owner)
    end
  end
end

-- Moves the deadlines of some, because one before them has gone.
local function shift(owners)
  for _, owner in ipairs(owners) do
    if redis.call('ZSCORE', KEYS[3], owner) then
      redis.call('ZINCRBY', KEYS[3], -budget, owner)
    end
  end
end

-- Takes an owner out of the queue, wherever it stands. Returns false if the queue is empty by that: its keys must not be looked at
-- again then, since in a slot on its way to another node that is an error.
local function leave(owner)
  local place = redis.call('LPOS', KEYS[2], owner)
  if not place then
    redis.call('ZREM', KEYS[3], owner)
    return true
  end
  local behind = redis.call('LRANGE', KEYS[2], place + 1, -1)
  redis.call('ZREM', KEYS[3], owner)
  local left = place + 1 + #behind - redis.call('LREM', KEYS[2], 0, owner)
  redis.pcall('HDEL', absentees, owner)
  if left == 0 then
    return false
  end
  shift(behind)
  return true
end

-- The first in the queue that is not overdue, and its deadline. Those before it are dropped, and told: one that lives after all queues
-- up again. They are read before any is dropped, for the same reason as above.
local function head()
  local overdue, first, deadline = {}, nil, nil
  while true do
    first = redis.call('LINDEX', KEYS[2], #overdue)
    deadline = first and tonumber(redis.call('ZSCORE', KEYS[3], first))
    if first and not deadline then -- it was lost
      deadline = now + budget
      redis.pcall('ZADD', KEYS[3], deadline, first)
    end
    if not first or deadline > now then
      break
    end
    table.insert(overdue, first)
  end
  for _, owner in ipairs(overdue) do
    redis.call('ZREM', KEYS[3], owner)
    redis.call('LREM', KEYS[2], 1, owner)
    redis.pcall('HDEL', absentees, owner)
    tell(owner)
  end
  return first, deadline
end
