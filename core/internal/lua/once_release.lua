-- Frees a hold without a record, removes the marker of its grant, and publishes the release. A
-- record stays, and so does the marker of another hold. A hold that is gone was lost, perhaps during
-- its work, so its marker stays unless its caller knows that no work began.
--
-- KEYS[1]  lock hash
-- KEYS[2]  record hash
-- ARGV[1]  wire owner
-- ARGV[2]  1: no work began, so the marker goes even if the hold is gone; 0: it goes with the hold
-- ARGV[3]  channel
-- ARGV[4]  message
-- ARGV[5..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1  freed
--   0  the hold was gone

local marked = redis.call('HGET', KEYS[2], 'marker') == ARGV[1]
local freed = redis.call('HDEL', KEYS[1], ARGV[1])
if marked and (freed == 1 or ARGV[2] == '1') then
  redis.call('DEL', KEYS[2])
end
if freed == 0 then
  return 0
end

for i = 5, #ARGV do
  redis.pcall(ARGV[i], ARGV[3], ARGV[4])
end
return 1
