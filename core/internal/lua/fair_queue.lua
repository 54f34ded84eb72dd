-- What every script of a fair lock begins with. Not a script of its own.
--
-- KEYS[1]  lock hash
-- KEYS[2]  queue, a list of wire owners
-- KEYS[3]  deadlines of the wire owners in the queue, a sorted set, ms of the server's clock

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- The first in the queue that is not overdue, after those that are have been dropped; and its deadline.
local function head()
  while true do
    local first = redis.call('LINDEX', KEYS[2], 0)
    local deadline = first and redis.call('ZSCORE', KEYS[3], first)
    if not deadline or tonumber(deadline) > now then
      return first, deadline and tonumber(deadline)
    end
    redis.call('ZREM', KEYS[3], first)
    redis.call('LPOP', KEYS[2])
  end
end

-- Moves the deadlines of some, because one before them has gone.
local function shift(owners, ms)
  for _, owner in ipairs(owners) do
    if redis.call('ZSCORE', KEYS[3], owner) then
      redis.call('ZINCRBY', KEYS[3], ms, owner)
    end
  end
end
