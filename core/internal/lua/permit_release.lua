-- Frees the permits of a hold and publishes how many are free.
--
-- KEYS[1]   number of free permits
-- KEYS[2]   permits that are taken
-- ARGV[1]   wire owner
-- ARGV[2]   number of its permits
-- ARGV[3]   channel
-- ARGV[4..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   0      the hold was gone
--   1 + n  freed; n clients received the message

local freed = drop(KEYS[2], ARGV[1], tonumber(ARGV[2]))
if freed == 0 then
  return 0
end
return 1 + announce(KEYS[1], freed, 3)
