-- Renews many holds of one client.
--
-- KEYS       the lock hash of each hold, then in that order the time-out keys of all read levels, and
--            the families of those permits that a guest uses; see permit_enter.lua
-- ARGV[1]    lease, ms
-- ARGV[2]    number of holds
-- ARGV[2+i]  field of the i-th hold in its hash
-- ARGV[..]   for each hold with time-out keys, permits, another lease or a sighting: its index, the
--            number of its keys, or that of its permits below 0, its lease in ms, and when it expired
--            when it was last seen to live for too long, in ms of the server's clock; 0: it was not
--
-- The key of permits is the sorted set of those that are taken, by expiry, and the field is the id of
-- the first. For a guest, a slash and its wire owner follow.
--
-- Reply: for each hold 1 if it was renewed, 0 if it is gone, the TTL of its hash or permit in ms if
-- that is much longer than the lease and no other owner shares it, or the text of the error of its
-- keys. Then the server's clock in ms if there is such a TTL, otherwise 0.
--
-- Redis serves no other client while the script runs, so it does as little for each hold as
-- possible.

-- Calls are protected: one key of a wrong type must not stop the others from being renewed.
local call, KEYS, ARGV = redis.pcall, KEYS, ARGV
local holds = tonumber(ARGV[2])
local now = 0

-- Prolongs a key, never shortens it. A missing key is restored if it has a value. Returns the TTL
-- that it had, or the text of an error.
local function prolong(key, lease, value)
  local ttl, done = call('PTTL', key), nil
  if type(ttl) == 'number' and ttl < lease then
    if ttl == -2 and value then
      -- Redis with full memory refuses SET, but only as the first write of a script. HDEL needs no
      -- memory. No field has an empty name.
      call('HDEL', KEYS[1], '')
      done = call('SET', key, value, 'PX', lease)
    else
      done = call('PEXPIRE', key, lease)
    end
  end
  return type(ttl) == 'table' and ttl.err or type(done) == 'table' and done.err or ttl
end

-- Reports whether another owner may have a hold in the hash. Only readers share one, and the hash
-- of one reader has two fields.
local function shared(key)
  return call('HGET', key, 'mode') == 'read' and call('HLEN', key) ~= 2
end

-- Sets the TTL of a hash that lives for much longer than the lease. A clock that was set back does
-- that, and a longer lease that has ended. The sender has seen it before, and has no command under
-- way that needs it. A command that prolongs the lease moves the time at which the hash expires, so
-- a late renewal finds another time and changes nothing. Returns the reply, and whether it has
-- shortened the TTL.
local function shorten(key, lease, ttl, seen)
  if shared(key) then
    return 1, false
  end
  local clock = call('TIME')
  if clock.err then -- the user may not ask
    return 1, false
  end
  now = clock[1] * 1000 + math.floor(clock[2] / 1000)
  if math.abs(now + ttl - seen) > 100 then
    return ttl, false
  end
  call('PEXPIRE', key, lease)
  return 1, true
end

-- Renews the permits of a hold, and the place of a guest in their family. Returns the reply.
local function permits(key, field, count, lease, seen, family)
  local id, guest = string.match(field, '^([^/]+)/?(.*)$')
  local members = family and {{family, guest}} or {}
  for i = 1, count do
    table.insert(members, {key, i == 1 and id or id .. ':' .. i})
  end
  local clock, longest = call('TIME'), 0
  if clock.err then
    return clock.err
  end
  local time = clock[1] * 1000 + math.floor(clock[2] / 1000)
  for _, m in ipairs(members) do
    local score = call('ZSCORE', m[1], m[2])
    if not score or type(score) == 'table' then
      return score and score.err or 0
    end
    if tonumber(score) <= time then
      return 0
    end
    longest = math.max(longest, tonumber(score))
  end
  call('ZREM', key, '') -- as above: ZADD must not be the first write. No id is empty
  local long = longest > time + lease * 9 / 8
  local shortens = long and seen ~= 0 and math.abs(longest - seen) <= 100
  for _, m in ipairs(members) do
    local done = call('ZADD', m[1], shortens and 'XX' or 'GT', time + lease, m[2])
    if type(done) == 'table' and done.err then
      return done.err
    end
  end
  for _, set in ipairs({key, family}) do
    local ttl = call('PTTL', set)
    if ttl >= 0 and ttl < 2 * lease then
      call('PEXPIRE', set, math.max(24 * 3600 * 1000, 2 * lease))
    end
  end
  if not long or shortens then
    return 1
  end
  now = time
  return longest - time
end

local special = {} -- by index, where a hold's arguments are
for a = holds + 3, #ARGV, 4 do
  special[tonumber(ARGV[a])] = a
end

local results, usual, last = {}, tonumber(ARGV[1]), holds
for i = 1, holds do
  local key, a, first = KEYS[i], special[i], last + 1
  local lease, seen = usual, 0
  if a then
    last, lease, seen = last + tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  end

  local result, shortened, counted = 0, false, a and tonumber(ARGV[a + 1]) < 0
  if counted then
    local family = string.find(ARGV[2 + i], '/', 1, true)
    last = family and first or first - 1
    result = permits(key, ARGV[2 + i], -ARGV[a + 1], lease, seen, family and KEYS[first])
  else
    local mine = call('HEXISTS', key, ARGV[2 + i])
    result = mine == 0 and 0 or mine == 1 and 1 or mine.err
  end
  if result == 1 and not counted then
    local ttl = prolong(key, lease)
    if type(ttl) == 'string' then
      result = ttl
    elseif ttl > lease * 9 / 8 then
      result, shortened = shorten(key, lease, ttl, seen)
    end
  end
  for k = first, counted and 0 or last do
    if result ~= 0 and type(result) == 'number' then
      local ttl = prolong(KEYS[k], lease, '1')
      if type(ttl) == 'string' then
        result = ttl
      elseif shortened and ttl > lease then
        call('PEXPIRE', KEYS[k], lease)
      end
    end
  end
  results[i] = result
end
results[holds + 1] = now
return results
