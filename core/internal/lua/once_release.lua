-- Frees a hold without a record, removes the marker of its grant, and publishes the release. A
-- record stays, and so does the marker of another hold. The hold's own marker is removed even if
-- the hold is gone: a marker says that work may have been done, and the caller knows that none was.
--
-- KEYS[1]   lock hash
-- KEYS[2]   record hash
-- ARGV[1]   wire owner
-- ARGV[2]   channel
-- ARGV[3]   message
-- ARGV[4..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1  freed
--   0  the hold was gone

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
