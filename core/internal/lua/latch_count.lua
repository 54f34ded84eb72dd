-- Returns the count of a latch.
--
-- KEYS[1]  count: a string
--
-- Reply:
--   count      a string of digits; 0: there is none
--   WRONGKIND  error: the key is no count

local count, wrong = read(KEYS[1])
return wrong or count or '0'
