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
-- Reply: 1, done; 0, the hold is gone.

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

local function publish(message)
  for i = 11, #ARGV do
    redis.pcall(ARGV[i], ARGV[8], message)
  end
end

-- The longest time that another reader has left, and whether every other reader has some. Keys of others are not declared:
-- who reads is known only here.
local function others()
  local longest, all = 0, true
  local fields = redis.call('HGETALL', hash)
  for f = 1, #fields, 2 do
    local field, levels = fields[f], tonumber(fields[f + 1])
    if levels and field ~= owner and field ~= writer then
      local alive = false
      for level = 1, levels do
        local ttl = redis.pcall('PTTL', ARGV[5] .. field .. ARGV[6] .. level)
        if type(ttl) == 'number' and ttl > 0 then
          longest, alive = math.max(longest, ttl), true
        end
      end
      all = all and alive
    end
  end
  return longest, all
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
  local longest, all = others()
  local sure = all or ARGV[7] == '1'
  if longest > 0 or not sure then
    if sure and longest < redis.call('PTTL', hash) then
      redis.call('PEXPIRE', hash, longest) -- no reader is left who has longer
    end
    return 1
  end
  -- Only dead readers are left.
end

redis.call('DEL', hash)
publish(wrote and ARGV[10] or ARGV[9])
return 1
