-- Removes the mark of a call of which no try can arrive any more.
--
-- KEYS[1]  mark
--
-- Reply:
--   1  removed
--   0  there was none

return redis.call('DEL', KEYS[1])
