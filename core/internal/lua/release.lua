-- Frees a hold and publishes the release.
--
-- KEYS[1]   lock hash
-- ARGV[1]   wire owner
-- ARGV[2]   channel
-- ARGV[3]   message
-- ARGV[4..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   0      the hold was gone
--   1 + n  freed; n clients received the message

if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end

-- The lock is free now. If the user may not publish, the release must still succeed.
local listeners = 0
for i = 4, #ARGV do
  local received = redis.pcall(ARGV[i], ARGV[2], ARGV[3])
  if type(received) == 'number' then
    listeners = listeners + received
  end
end
return 1 + listeners
