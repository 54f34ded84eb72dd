-- Frees a hold that leaves no record, takes away the marker it was granted with, and announces it. A marker of somebody else
-- stays, and so does a record. A marker without its hold goes as well: it says that something may have been done, and
-- who calls this knows that nothing was.
--
-- KEYS[1]   lock hash
-- KEYS[2]   record hash
-- ARGV[1]   wire owner
-- ARGV[2]   channel
-- ARGV[3]   message
-- ARGV[4..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: 1, freed; 0, the hold was gone already.

local marked = redis.call('HGET', KEYS[2], 'marker') == ARGV[1]
local freed = redis.call('HDEL', KEYS[1], ARGV[1])
if marked then
  redis.call('DEL', KEYS[2])
end
if freed == 0 then
  return 0
end

for i = 4, #ARGV do
  redis.pcall(ARGV[i], ARGV[2], ARGV[3])
end
return 1
