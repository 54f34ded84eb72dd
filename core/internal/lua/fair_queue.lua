-- The queue of a fair lock. This is not a script, but the beginning of all scripts of a fair lock.
--
-- KEYS[1]  lock hash
-- KEYS[2]  queue, a list of wire owners
-- KEYS[3]  deadlines of the wire owners in the queue, a sorted set, ms of the server's clock
-- ARGV[1]  budget: how long a waiter may be silent before it is dropped, ms
-- ARGV[2]  grace: how long the first waiter may have no listener while the lock is free before it
--          is dropped, ms; 0: listeners cannot be counted
-- ARGV[3]  prefix of the waiters' channels; the wire owner follows it
-- ARGV[4]  message
-- ARGV[5]  command to publish with: PUBLISH or SPUBLISH
-- ARGV[6]  a second such command, or an empty string
--
-- Queue and deadlines hold the same owners. If one of the keys was lost, each script repairs what
-- it meets. An owner at the head gets a deadline. An owner that tries gets its place or its
-- deadline back. A grant, a release or a waiter that leaves deletes deadlines without a queue. Those
-- of dead waiters would stay for ever, since the key has no TTL.
--
-- A third key, KEYS[3] .. ':absent', is a hash of waiters that had no listener when their turn
-- came, and since when, in ms of the server's clock. It expires by itself. It is rarely there, so
-- it is not among the KEYS: in a slot in migration, a missing key is an error.

local budget, grace = tonumber(ARGV[1]), tonumber(ARGV[2])
local absentees = KEYS[3] .. ':absent'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Notifies a waiter. Returns how many clients listen on its channel; nil: unknown.
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

-- Notifies a waiter that its turn has come. Returns for how many ms it has had no listener; nil: it
-- has one, or that is unknown.
local function summon(owner)
  if tell(owner) ~= 0 then
    redis.pcall('HDEL', absentees, owner)
    return nil
  end
  local since = redis.pcall('HGET', absentees, owner)
  if type(since) ~= 'string' or tonumber(since) > now then -- later than now: the clock was set back
    since = now
    redis.pcall('HSET', absentees, owner, since)
    redis.pcall('PEXPIRE', absentees, 60000)
  end
  return now - since
end

-- Deletes the notes on all absent waiters except the given ones.
local function forget(others)
  local noted = redis.pcall('HKEYS', absentees)
  for _, owner in ipairs(noted) do
    if not others[owner] then
      redis.pcall('HDEL', absentees, owner)
    end
  end
end

-- Moves the deadlines of waiters forward by one budget, because a waiter before them has left.
local function shift(owners)
  for _, owner in ipairs(owners) do
    if redis.call('ZSCORE', KEYS[3], owner) then
      redis.call('ZINCRBY', KEYS[3], -budget, owner)
    end
  end
end

-- Deletes the deadlines, because there is no queue.
local function clear()
  redis.pcall('DEL', KEYS[3])
end

-- Removes an owner from the queue, at any position. Returns false if the queue is empty afterwards.
-- Its keys must not be read again then: in a slot in migration, a missing key is an error.
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
    clear()
    return false
  end
  shift(behind)
  return true
end

-- Returns the first waiter that is not overdue, and its deadline. Drops the overdue waiters before
-- it, and notifies them, so that those alive queue up again. All are read before any is dropped,
-- because the queue may be empty afterwards; see leave.
local function head()
  local overdue, first, deadline = {}, nil, nil
  while true do
    first = redis.call('LINDEX', KEYS[2], #overdue)
    deadline = first and tonumber(redis.call('ZSCORE', KEYS[3], first))
    if first and not deadline then -- the deadline was lost
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
