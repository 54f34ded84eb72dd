-- Frees a hold of a fair lock, or takes its owner out of the queue, whichever there is to do, and tells the first in the
-- queue if the lock is free.
--
-- KEYS      see fair_queue.lua
-- ARGV[1]   wire owner
-- ARGV[2]   how much sooner those behind it are overdue when it leaves the queue, ms
-- ARGV[3]   what precedes the first one's wire owner in the name of its channel
-- ARGV[4]   message
-- ARGV[5..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: 1, freed; 0, the hold was gone already, or never was.

local owner = ARGV[1]
local holds = redis.call('HLEN', KEYS[1])

local waits = redis.call('ZSCORE', KEYS[3], owner)
local place = waits and redis.call('LPOS', KEYS[2], owner)
if place then
  shift(redis.call('LRANGE', KEYS[2], place + 1, -1), -tonumber(ARGV[2]))
end
local first = head(place and owner)
if place and first then -- it may have stood behind the first
  redis.call('LREM', KEYS[2], 0, owner)
end
if waits and (first or not place) then
  redis.call('ZREM', KEYS[3], owner)
end

local freed = redis.call('HDEL', KEYS[1], owner)
if first and holds == freed then
  for i = 5, #ARGV do
    redis.pcall(ARGV[i], ARGV[3] .. first, ARGV[4])
  end
end
return freed
