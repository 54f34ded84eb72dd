-- Takes permits of a semaphore, all or none, or repeats a take whose reply was lost.
--
-- KEYS[1]   number of free permits; below 0 if there are fewer permits than before
-- KEYS[2]   permits that are taken: sorted set of ids by their expiry, in ms of the server's clock
-- KEYS[3]   declaration: how many permits there are, and since when that is so
-- ARGV[1]   wire owner
-- ARGV[2]   lease, ms
-- ARGV[3]   number of permits to take
-- ARGV[4]   how many permits there are, as the caller declares; 0: as Redis has it
-- ARGV[5]   age of the caller's declaration, ms. The later one of two is right, if it is later by more
--           than a second: a command may be under way for some time
-- ARGV[6]   channel
-- ARGV[7..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1 + n      granted; n permits are free
--   {ttl}      not enough are free; the next one expires in ttl ms, -1: never, or nothing is known
--   {ttl, 1}   likewise, and there are some permits, but fewer than the caller wants
--   WRONGKIND  error: the key is no semaphore
--
-- The keys expire half a day to a day after their last use. They stay for ever if SetPermits or another
-- program has set the number. There are as many permits as are free and taken. If that is not what was
-- declared, a key was lost or the declaration is new, so the script corrects the number of free ones.

local owner, lease, wants = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = clock()
local free, wrong = number(KEYS[1])
if wrong then
  return redis.error_reply('WRONGKIND the key is no semaphore')
end

-- A permit that has expired is free.
local old = free
local expired, taken = 0, redis.call('ZCARD', KEYS[2])
if taken > 0 then
  expired = redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now))
  taken, free = taken - expired, free and free + expired
end

-- Returns how many permits there are by the latest declaration, or nil if there is none. The caller's
-- is stored if it is the latest.
local declares = false
local function declared()
  local permits, since = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%d+)$')
  local begun = now - ARGV[5]
  if ARGV[4] ~= '0' and (not permits or tonumber(since) + 1000 < begun) then
    permits, declares = ARGV[4], true
    redis.call('SET', KEYS[3], string.format('%s %d', permits, begun))
  end
  return tonumber(permits)
end

local corrected = false
if not free or ARGV[4] ~= '0' and free + taken ~= tonumber(ARGV[4]) then
  local permits = declared()
  if not permits then
    return {-1}
  end
  corrected = free ~= permits - taken
  free = permits - taken
end

local lacks = taken > 0 and missing(KEYS[2], owner, wants, now) or wants -- a repeat may lack none
local granted = lacks == 0 or free >= lacks
if granted then
  take(KEYS[2], owner, wants, now + lease)
  free = free - lacks
end
if free ~= old then
  redis.call('INCRBY', KEYS[1], free - (old or 0))
end

-- Prolongs the lives of the keys, unless they stay for ever. If the number of free permits was lost, the
-- declaration tells.
local day = math.max(24 * 3600 * 1000, 2 * lease)
local ttl = old and redis.call('PTTL', KEYS[1]) or not declares and redis.call('PTTL', KEYS[3]) or 0
if ttl ~= -1 then
  if ttl < day / 2 or corrected then
    for i = 1, 3 do
      redis.call('PEXPIRE', KEYS[i], day)
    end
  elseif taken == 0 then
    redis.call('PEXPIRE', KEYS[2], day)
  end
end

-- Others may want what has expired or was added.
if (expired > 0 or corrected) and free > 0 then
  announce(KEYS[1], 0, 6)
end
if granted then
  return 1 + math.max(free, 0)
end
local nearest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]
nearest = nearest and tonumber(nearest) or math.huge
local all = free + taken
return {nearest < 9e14 and nearest - now or -1, all > 0 and all < wants and 1 or nil}
