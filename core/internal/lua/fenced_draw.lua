-- Draws a fencing token. This is not a script, but the beginning of all scripts that draw one: every
-- grant to a fenced handle does, whatever its kind. All handles of a name draw from one counter.
--
-- Lua numbers are exact up to 2^53. A counter may be greater: to go on after a loss of data, an
-- operator may set it to the nanoseconds of a clock. As a number, a token beyond 2^53 could equal
-- the next holder's. So it is returned as a string.

local function draw(counter)
  local token = redis.call('INCR', counter)
  if token < 2^53 then
    return token
  end
  return redis.call('GET', counter)
end

