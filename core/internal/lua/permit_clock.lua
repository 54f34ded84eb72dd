-- Counts permits by the server's clock. This is not a script, but the beginning of those that do.
--
-- A lease may have several permits. The first has the wire owner as its id, and the others have :2,
-- :3 and so on after it. An id whose expiry has passed holds nothing, but counts as taken until an
-- acquire removes it. No command prolongs it: after a late one, the permit would have no holder that
-- frees it.

-- Returns the server's clock in ms.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the number of free permits, or nil if there is none, and whether the key has something else.
local function number(free)
  local text = redis.call('GET', free)
  local n = tonumber(text or nil)
  return n, text and not n
end

-- Returns the id of the i-th permit of a wire owner.
local function permit(owner, i)
  return i == 1 and owner or owner .. ':' .. i
end

-- Reports whether a sorted set has a member that has not expired.
local function lives(set, member, now)
  local expiry = redis.call('ZSCORE', set, member)
  return expiry and tonumber(expiry) > now
end

-- Returns how many permits of a wire owner are missing or have expired.
local function missing(taken, owner, count, now)
  local there = 0
  for i = 1, count do
    there = there + (lives(taken, permit(owner, i), now) and 1 or 0)
  end
  return count - there
end

-- Takes permits until expiry, or prolongs them. It never shortens one.
local function take(taken, owner, count, expiry)
  local score = string.format('%d', expiry)
  for i = 1, count do
    redis.call('ZADD', taken, 'GT', score, permit(owner, i))
  end
end

-- Removes the permits of a wire owner, and returns how many there were.
local function drop(taken, owner, count)
  local dropped = 0
  for i = 1, count do
    dropped = dropped + redis.call('ZREM', taken, permit(owner, i))
  end
  return dropped
end

-- Prolongs the life of a key, so that it does not end before a lease.
local function outlast(key, lease)
  local ttl = redis.call('PTTL', key)
  if ttl >= 0 and ttl < lease then
    redis.call('PEXPIRE', key, 2 * lease)
  end
end

-- Adds to the number of free permits, if it is known, and publishes it if any is free. Returns how
-- many clients received the message. The permits are free by now: if the user may not publish, that
-- must still succeed.
local function announce(free, more, first)
  local listeners = 0
  local now = redis.call('EXISTS', free) == 1 and redis.pcall('INCRBY', free, more)
  now = type(now) == 'number' and now or more -- another program may have stored something else there
  if now > 0 then
    for i = first + 1, #ARGV do
      local received = redis.pcall(ARGV[i], ARGV[first], now)
      if type(received) == 'number' then
        listeners = listeners + received
      end
    end
  end
  return listeners
end

