-- Sets the count of a latch, unless it has one, or repeats that.
--
-- KEYS[1]   count: a string
-- KEYS[2]   mark of this call: the reply to its first try, which is the reply to all later ones
-- ARGV[1]   count, at least 1
-- ARGV[2]   how long the mark stays, ms
-- ARGV[3]   channel
-- ARGV[4]   message
-- ARGV[5..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1          set
--   0          there was a count
--   WRONGKIND  error: the key is no count

local known = redis.call('GET', KEYS[2])
if known then
  return tonumber(known)
end

local count, wrong = read(KEYS[1])
if wrong then
  return wrong
end
redis.call('SET', KEYS[2], count and '0' or '1', 'PX', ARGV[2])
if count then
  return 0
end

redis.call('SET', KEYS[1], ARGV[1])
for i = 5, #ARGV do
  redis.pcall(ARGV[i], ARGV[3], ARGV[4]) -- the count is set, also if the user may not publish
end
return 1
