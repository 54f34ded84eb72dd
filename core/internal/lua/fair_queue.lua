-- The queue of a fair lock. This is not a script, but the beginning of all scripts of a fair lock.
--
-- KEYS[1]  lock hash
-- KEYS[2]  queue, a list of wire owners
-- KEYS[3]  deadlines of the wire owners in the queue, a sorted set, ms of the server's clock
-- ARGV[1]  budget: how long a waiter may be silent before it is dropped, ms
-- ARGV[2]  grace: how long a waiter may have no listener, or leave the free lock alone after it was
--          told that its turn has come, before it is dropped, ms
-- ARGV[3]  prefix of the waiters' channels; the wire owner follows it
-- ARGV[4]  message
-- ARGV[5]  command to publish with: PUBLISH or SPUBLISH
-- ARGV[6]  a second such command, or an empty string
-- ARGV[7]  1: this server knows all listeners; 0: it does not
--
-- Queue and deadlines hold the same owners. If one of the keys was lost, each script repairs what
-- it meets. An owner at the head gets a deadline. An owner that tries gets its place or its
-- deadline back. A grant, a release or a waiter that leaves deletes deadlines without a queue. Those
-- of dead waiters would stay for ever, since the key has no TTL.
--
-- Only the first waiter's deadline matters. Those behind it have a budget for each waiter before
-- them, as Redisson computes it. When a waiter leaves, the deadlines behind it stay: each waiter
-- corrects its own when it tries.
--
-- No script looks at more places than a batch, but in two cases. If a key was lost, it searches the
-- whole queue. To remove a waiter from the middle, Redis walks through the list from one end. Waiters
-- that leave together share that walk.
--
-- A third key, KEYS[3] .. ':absent', is a hash of waiters that had no listener, and since when, in
-- ms of the server's clock. Its fields 'next' and 'due' are for sweep. It expires by itself. It is
-- rarely there, so it is not among the KEYS: in a slot in migration, a missing key is an error.

local budget, grace = tonumber(ARGV[1]), tonumber(ARGV[2])
local batch = 100 -- how many waiters a script looks at
local absentees = KEYS[3] .. ':absent'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Notifies a waiter. Returns how many clients of this server listen on its channel; nil: it could
-- not be notified.
local function tell(owner)
  local listeners = 0
  for i = 5, 6 do
    if ARGV[i] ~= '' then
      local n = redis.pcall(ARGV[i], ARGV[3] .. owner, ARGV[4])
      listeners = listeners and type(n) == 'number' and listeners + n or nil
    end
  end
  return listeners
end

-- Returns the owners that listen, as a set; nil: the user may not ask.
local function listening(owners)
  local listen, channels = {}, {}
  for i, owner in ipairs(owners) do
    channels[i] = ARGV[3] .. owner
  end
  for i = 5, 6 do
    if ARGV[i] ~= '' then
      local counts = redis.pcall('PUBSUB', ARGV[i] == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', unpack(channels))
      if type(counts) ~= 'table' or counts.err then
        return nil
      end
      for j, owner in ipairs(owners) do
        listen[owner] = listen[owner] or tonumber(counts[2 * j]) > 0
      end
    end
  end
  return listen
end

-- Deletes what belongs to a queue, because there is none.
local function clear()
  redis.pcall('DEL', KEYS[3])
  redis.pcall('DEL', absentees)
end

-- Reports whether there is a queue, and deletes what belongs to it if not. A missing key is an error
-- in a slot in migration.
local function lasts()
  if type(redis.pcall('LINDEX', KEYS[2], 0)) == 'string' then
    return true
  end
  clear()
  return false
end

-- Reports whether queue and deadlines hold the same owners, and how many the queue holds. Keys are
-- lost as a whole, so they hold the same if they hold as many.
local function whole()
  local places = redis.call('LLEN', KEYS[2])
  return places == redis.call('ZCARD', KEYS[3]), places
end

-- Returns the place of an owner in the queue, from 0, and whether it is exact. Beyond the first batch
-- it is about right. nil: the owner is not in the queue.
local function find(owner, deadline)
  if not whole() then
    return redis.call('LPOS', KEYS[2], owner) or nil, true
  elseif not deadline then
    return nil
  end
  local place = redis.call('LPOS', KEYS[2], owner, 'MAXLEN', batch)
  return place or math.max(batch, redis.call('ZRANK', KEYS[3], owner)), place and true
end

-- Returns the index of an owner in the queue, which has the given rank among the deadlines. Their order
-- is nearly that of the queue. nil: the owner is not near that rank.
local function around(owner, rank)
  if redis.call('LINDEX', KEYS[2], rank) == owner then
    return rank
  end
  local first = math.max(rank - 16, 0)
  for i, other in ipairs(redis.call('LRANGE', KEYS[2], first, rank + 16)) do
    if other == owner then
      return first + i - 1
    end
  end
end

-- Removes owners from the queue, at any position. Few are searched for from the nearer end. Many are
-- marked first and then removed in one pass; no owner is empty. Returns false if the queue is empty
-- afterwards. Its keys must not be read again then.
local function leave(owners)
  local few, marked, same, places = 4, 0, whole()
  for _, owner in ipairs(owners) do
    local rank = redis.call('ZRANK', KEYS[3], owner)
    local index = same and rank and #owners > few and around(owner, rank)
    if index then
      redis.call('LSET', KEYS[2], index, '')
      marked = marked + 1
    elseif rank or not same then
      redis.call('LREM', KEYS[2], not same and 0 or rank < places / 2 and 1 or -1, owner)
    end
  end
  if marked > 0 then
    redis.call('LREM', KEYS[2], marked, '')
  end
  redis.call('ZREM', KEYS[3], unpack(owners))
  redis.pcall('HDEL', absentees, unpack(owners))
  return lasts()
end

-- Looks at the next waiters in the queue: notes those that have no listener, and drops those that
-- had none a grace ago either. Repeated calls look at the whole queue, so that all dead waiters are
-- dropped together. Returns after how many ms to go on, and whether the queue is empty now.
--
-- 'next' is the place to go on at, -1 when all have been seen. Then 'due' is when they are looked at
-- again.
local function sweep(first, mine)
  local notes = redis.pcall('HMGET', absentees, 'next', 'due', first)
  local place = tonumber(notes[1]) or -1
  local wait = (tonumber(notes[2]) or 0) - now
  if place < 0 then
    if notes[3] and wait > 0 and wait <= grace then -- longer: the clock was set back
      return wait
    end
    place = 0
  end
  local owners = redis.call('LRANGE', KEYS[2], place, place + batch - 1)
  local listen = #owners == 0 and {} or listening(owners)
  if not listen then
    return nil
  end
  local absent, back, gone = {}, {}, 0
  notes = #owners == 0 and {} or redis.pcall('HMGET', absentees, unpack(owners))
  for i, owner in ipairs(owners) do
    if listen[owner] or owner == mine then
      table.insert(back, owner)
    elseif not notes[i] or tonumber(notes[i]) > now then -- later than now: the clock was set back
      table.insert(absent, owner)
      table.insert(absent, now)
    elseif now - notes[i] >= grace and tell(owner) == 0 then
      redis.call('ZREM', KEYS[3], owner)
      redis.call('LSET', KEYS[2], place + i - 1, '')
      table.insert(back, owner)
      gone = gone + 1
    end
  end
  if gone > 0 then
    redis.call('LREM', KEYS[2], gone, '')
  end
  local after = #owners == batch and place + batch - gone or -1
  redis.pcall('HSET', absentees, 'next', after, 'due', now + grace, unpack(absent))
  redis.pcall('PEXPIRE', absentees, math.max(60000, 4 * grace))
  if #back > 0 then
    redis.pcall('HDEL', absentees, unpack(back))
  end
  return after >= 0 and 0 or grace, gone > 0 and not lasts()
end

-- Gives the waiters of a process that has left its turn alone as little time as it had, and notifies
-- them. One that is alive tries and gets its time back. A Redisson client does not, so it keeps its
-- time.
local function doubt(silent, mine)
  for _, owner in ipairs(redis.call('LRANGE', KEYS[2], 0, batch - 1)) do
    local process = string.match(owner, '^(.*):') or owner
    if owner ~= mine and silent[process] and not string.find(process, '^%x+%-%x+%-%x+%-%x+%-%x+$') then
      local deadline = redis.call('ZSCORE', KEYS[3], owner)
      if deadline and tonumber(deadline) > now + grace then
        redis.call('ZADD', KEYS[3], now + grace, owner)
        tell(owner)
      end
    end
  end
end

-- Returns the first waiter that is not overdue, and its deadline. Drops the overdue waiters before
-- it, and notifies them, so that those alive queue up again. The one that tries is alive. All are
-- read before any is dropped, because the queue may be empty afterwards; see leave.
local function head(mine)
  local overdue, first, deadline = {}, nil, nil
  while true do
    first = redis.call('LINDEX', KEYS[2], #overdue)
    deadline = first and tonumber(redis.call('ZSCORE', KEYS[3], first))
    if first and not deadline then -- the deadline was lost
      deadline = now + budget
      redis.pcall('ZADD', KEYS[3], deadline, first)
    end
    if not first or deadline > now or first == mine or #overdue == batch then
      break
    end
    table.insert(overdue, first)
  end
  local silent = {}
  for _, owner in ipairs(overdue) do
    redis.call('ZREM', KEYS[3], owner)
    redis.call('LREM', KEYS[2], 1, owner)
    redis.pcall('HDEL', absentees, owner)
    tell(owner)
    silent[string.match(owner, '^(.*):') or owner] = true
  end
  if #overdue > 0 and first then
    doubt(silent, mine)
  end
  return first, deadline
end

-- Notifies the first waiter that its turn has come. If it has no listener, begins to look for the
-- dead, and if it is dropped with them, notifies the next.
local function summon(first)
  local listeners = tell(first)
  if listeners ~= 0 or ARGV[7] ~= '1' then
    redis.pcall('HDEL', absentees, first)
    return
  end
  local _, empty = sweep(first)
  local successor = not empty and head()
  if successor and successor ~= first then
    tell(successor)
  end
end
