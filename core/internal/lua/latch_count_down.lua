-- Counts a latch down by one, or repeats that. At 0 the count is deleted, and its end published.
--
-- KEYS[1]   count: a string
-- KEYS[2]   mark of this call: the reply to its first try, which is the reply to all later ones
-- ARGV[1]   how long the mark stays, ms
-- ARGV[2]   channel
-- ARGV[3]   message
-- ARGV[4..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply:
--   1          counted
--   0          there was no count
--   WRONGKIND  error: the key is no count

local known = redis.call('GET', KEYS[2])
if known then
  return tonumber(known)
end

local count, wrong = read(KEYS[1])
if wrong then
  return wrong
end
redis.call('SET', KEYS[2], count and '1' or '0', 'PX', ARGV[1])
if not count then
  return 0
end

local left = redis.call('DECR', KEYS[1])
if left <= 0 then
  redis.call('DEL', KEYS[1])
end
if left == 0 then
  for i = 4, #ARGV do
    redis.pcall(ARGV[i], ARGV[2], ARGV[3]) -- it is counted, also if the user may not publish
  end
end
return 1
