-- Looks for holds of a lock.
--
-- KEYS[1]  lock hash
-- ARGV     fields to look for
--
-- Reply: for each field, 1 if the lock has it, otherwise 0.

local counts = redis.call('HMGET', KEYS[1], unpack(ARGV))
for i = 1, #counts do
  counts[i] = counts[i] and 1 or 0
end
return counts
