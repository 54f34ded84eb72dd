-- What fenced_acquire.lua and fenced_pass.lua begin with: draws a fencing token. Not a script of its own.
--
-- Numbers are exact in Lua up to 2^53. A counter may be beyond that, if somebody has set it to the nanoseconds of a clock so that it
-- goes on after a loss of data; and then one holder's token would be the next one's as well. So it is told by its digits.

local function draw(counter)
  local token = redis.call('INCR', counter)
  if token < 2^53 then
    return token
  end
  return redis.call('GET', counter)
end

