-- Looks for permits.
--
-- KEYS[1]  permits that are taken
-- ARGV     ids to look for
--
-- Reply: for each id, 1 if it is there, otherwise 0.

local scores = redis.call('ZMSCORE', KEYS[1], unpack(ARGV))
for i = 1, #scores do
  scores[i] = scores[i] and 1 or 0
end
return scores
