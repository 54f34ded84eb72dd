-- Sets the counts of a hold on both sides of a read/write lock. The hold must exist. Re-entry,
-- extension, partial release, downgrade and release use this script. A release has both counts 0.
--
-- KEYS[1]    lock hash
-- KEYS[1+i]  time-out key of the hold's read level i, for as many levels as it has ever had
-- ARGV[1]    wire owner
-- ARGV[2]    count of the read side
-- ARGV[3]    count of the write side
-- ARGV[4]    lease, ms; 0 leaves the TTLs unchanged
-- ARGV[5]    prefix of time-out keys; the wire owner follows it
-- ARGV[6]    what follows the wire owner; the number of the level comes last
-- ARGV[7]    1: a time-out key that is missing here does not exist
--            0: it may be on the other node of a migration
-- ARGV[8]    channel
-- ARGV[9]    message of a read release
-- ARGV[10]   message of a write release
-- ARGV[11..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   0      the hold is gone
--   1      done
--   1 + n  done; the lock is free, and n clients received the message

local hash, owner, writer = KEYS[1], ARGV[1], ARGV[1] .. ':write'
local reads, writes, lease = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local wrote = redis.call('HEXISTS', hash, writer) == 1
if not wrote and redis.call('HEXISTS', hash, owner) == 0 then
  for i = 2, #KEYS do
    redis.call('DEL', KEYS[i])
  end
  return 0
end

if not wrote and writes > 0 then
  return 1 -- a stray from before a downgrade, and outdated: the read side is never upgraded
end

-- Redis with full memory refuses a write that may need memory, but only as the first write of a
-- script. HDEL needs none. No field has an empty name.
redis.call('HDEL', hash, '')

local function publish(message)
  local listeners = 0
  for i = 11, #ARGV do
    local received = redis.pcall(ARGV[i], ARGV[8], message)
    if type(received) == 'number' then
      listeners = listeners + received
    end
  end
  return listeners
end

-- How many other readers a release checks at a time, and how often at most. There may be thousands,
-- and Redis serves no other client meanwhile.
local few = 16

-- Returns the longest time that a reader has left by its time-out keys; 0: it is dead; nil:
-- unknown. These keys are not among the KEYS, because only the hash tells who reads. In a slot in
-- migration, a key that has moved gives an error on the old node and seems missing on the new one.
local function left(reader, levels)
  if string.sub(reader, -6) == ':write' then -- a writer, of which one is a guest of the other
    return redis.call('PTTL', hash)
  end
  local longest = 0
  for level = 1, levels do
    local ttl = redis.pcall('PTTL', ARGV[5] .. reader .. ARGV[6] .. level)
    if type(ttl) ~= 'number' or ttl == -2 and ARGV[7] ~= '1' then
      return nil
    end
    longest = math.max(longest, ttl)
  end
  return longest
end

-- Checks all other readers if there are few, or else a random sample. Returns the longest time that
-- one of them has left, or 0 if all are dead. Returns nil if finding out takes too much work for a
-- release. Removes the dead readers that it finds, so that they do not keep writers out while other
-- readers come and go.
local function others()
  for _ = 1, few do
    local fields = redis.pcall('HRANDFIELD', hash, few + 1, 'WITHVALUES') -- one may be the mode
    local all = redis.call('HLEN', hash) <= few + 1
    if fields.err and all then -- Redis 6.0 does not have that command
      fields = {}
      for _, field in ipairs(redis.call('HKEYS', hash)) do
        table.insert(fields, field)
        table.insert(fields, redis.call('HGET', hash, field))
      end
    end
    local longest, dead = 0, {}
    for f = 1, #fields, 2 do
      local levels = tonumber(fields[f + 1])
      local ttl = levels and left(fields[f], levels)
      if levels and not ttl then
        return nil
      elseif ttl == 0 then
        table.insert(dead, fields[f])
      elseif ttl then
        longest = math.max(longest, ttl)
        if not all then
          break
        end
      end
    end
    if #fields == 0 or all and longest == 0 then
      return #fields > 0 and 0 or nil
    end
    for _, reader in ipairs(dead) do
      redis.call('HDEL', hash, reader)
    end
    if all then
      return longest
    elseif longest > 0 then
      return nil
    end
  end
  return nil
end

-- Reports whether a hash in write mode has a writer. It has few fields: a writer keeps all out but its
-- guests.
local function written()
  for _, field in ipairs(redis.call('HKEYS', hash)) do
    if string.sub(field, -6) == ':write' then
      return true
    end
  end
  return false
end

if reads > 0 then
  local longest = lease
  for i = 2, #KEYS do
    longest = math.max(longest, redis.call('PTTL', KEYS[i]))
  end
  if longest <= 0 then -- a stray from before has deleted the time-out keys: use the TTL of the lock
    longest = redis.call('PTTL', hash)
  end
  for i = 2, reads + 1 do
    redis.call('SET', KEYS[i], '1', 'PX', math.max(longest, 1))
  end
  redis.call('HSET', hash, owner, reads)
else
  redis.call('HDEL', hash, owner)
end
for i = reads + 2, #KEYS do
  redis.call('DEL', KEYS[i])
end

if writes > 0 then
  redis.call('HSET', hash, writer, writes)
elseif wrote then
  redis.call('HDEL', hash, writer)
end

-- Turns the lock into one of readers when its last writer leaves and readers stay.
local function downgrade()
  if wrote and writes == 0 and not written() then
    redis.call('HSET', hash, 'mode', 'read')
    publish(ARGV[10]) -- readers may enter
  end
end

if reads + writes > 0 then
  if lease > 0 and redis.call('PTTL', hash) < lease then
    redis.call('PEXPIRE', hash, lease)
  end
  downgrade()
  return 1
end

if redis.call('HLEN', hash) > 1 then
  local longest = others()
  if longest ~= 0 then
    downgrade()
  end
  if not longest then
    return 1 -- the hash keeps its TTL
  elseif longest > 0 then
    if longest < redis.call('PTTL', hash) then
      redis.call('PEXPIRE', hash, longest) -- no other reader has more time left
    end
    return 1
  end
  -- Only dead readers are left.
end

redis.call('DEL', hash)
return 1 + publish(wrote and ARGV[10] or ARGV[9])
