-- Sets how often a hold of a read/write lock was entered on either side. The hold must be there. Re-entry, extension,
-- partial release, downgrade and, with both counts 0, the release are all this one script.
--
-- KEYS[1]   lock hash
-- KEYS[1+i] time-out key of the hold's read level i, for as many levels as it has ever had
-- ARGV[1]   wire owner
-- ARGV[2]   levels of the read side
-- ARGV[3]   levels of the write side
-- ARGV[4]   lease, ms; 0 leaves the times to live as they are
-- ARGV[5]   what precedes a wire owner in the name of its time-out keys
-- ARGV[6]   what follows it
-- ARGV[7]   1: a time-out key that is not here does not exist; 0: it may be on the other side of a migration
-- ARGV[8]   channel
-- ARGV[9]   message of a read release
-- ARGV[10]  message of a write release
-- ARGV[11..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: 0, the hold is gone; 1, done; where the lock is free now, 1 + how many clients have received the message.

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
  return 1 -- nobody enters the write side from the read side: this is a stray of before a downgrade, and says nothing of now
end

-- The first write needs no memory, and may change nothing: after it Redis refuses none, also when its memory is full.
redis.pcall('PEXPIRE', hash, 1, 'GT')

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

-- How many other readers a release looks at, at most. All others wait for this script, and there may be thousands of readers.
local few = 16

-- The longest time that a reader has left, by its time-out keys; 0: it is dead; nil: not known. Keys of others are not declared: who
-- reads is known only here. Where a slot is on its way to another node, one that has gone already is an error there, and
-- seems to be missing here.
local function left(reader, levels)
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

-- Looks at all other readers if they are few, or else at some of them, taken at random. Returns the longest time that one of them has
-- left, 0 if all are dead; or nil where that would be more to find out than a release may take. Those who are dead are removed on the
-- way, so that they keep no writer out for as long as others come and go.
local function others()
  for _ = 1, few do
    local fields = redis.pcall('HRANDFIELD', hash, few + 1, 'WITHVALUES') -- one of them is the mode
    local all = #fields <= 2 * (few + 1) and redis.call('HLEN', hash) * 2 == #fields
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

if reads > 0 then
  local longest = lease
  for i = 2, #KEYS do
    longest = math.max(longest, redis.call('PTTL', KEYS[i]))
  end
  if longest <= 0 then -- a stray of before it read has taken its levels away: it has what the lock has
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

if reads + writes > 0 then
  if wrote and writes == 0 then
    redis.call('HSET', hash, 'mode', 'read')
  end
  if lease > 0 and redis.call('PTTL', hash) < lease then
    redis.call('PEXPIRE', hash, lease)
  end
  if wrote and writes == 0 then
    publish(ARGV[10]) -- readers may come in
  end
  return 1
end

if redis.call('HLEN', hash) > 1 then
  local longest = others()
  if not longest then
    return 1 -- the hash lives on for as long as it did with this reader
  elseif longest > 0 then
    if longest < redis.call('PTTL', hash) then
      redis.call('PEXPIRE', hash, longest) -- no reader is left who has longer
    end
    return 1
  end
  -- Only dead readers are left.
end

redis.call('DEL', hash)
return 1 + publish(wrote and ARGV[10] or ARGV[9])
