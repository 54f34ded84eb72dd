-- Frees a hold and announces it.
--
-- KEYS[1]   lock hash
-- ARGV[1]   wire owner
-- ARGV[2]   channel
-- ARGV[3]   message
-- ARGV[4..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: 1, freed; 0, the hold was gone already.

if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end

-- The lock is free by now: a refused PUBLISH must not make an error of that.
for i = 4, #ARGV do
  redis.pcall(ARGV[i], ARGV[2], ARGV[3])
end
return 1
