-- What every script of a fair lock begins with. Not a script of its own.
--
-- KEYS[1]  lock hash
-- KEYS[2]  queue, a list of wire owners
-- KEYS[3]  deadlines of the wire owners in the queue, a sorted set, ms of the server's clock

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- The first in the queue that is not overdue, and its deadline; those before it are dropped, and so is one that leaves. They are
-- read before any is dropped: a key that goes with the last of them must not be looked at again, since in a slot on its way
-- to another node that is an error.
local function head(leaver)
  local dropped, first, deadline = {}, nil, nil
  while true do
    first = redis.call('LINDEX', KEYS[2], #dropped)
    deadline = first and tonumber(redis.call('ZSCORE', KEYS[3], first))
    if not first or first ~= leaver and not (deadline and deadline <= now) then
      break
    end
    table.insert(dropped, first)
  end
  for _, owner in ipairs(dropped) do
    redis.call('ZREM', KEYS[3], owner)
    redis.call('LPOP', KEYS[2])
  end
  return first, deadline
end

-- Moves the deadlines of some, because one before them has gone.
local function shift(owners, ms)
  for _, owner in ipairs(owners) do
    if redis.call('ZSCORE', KEYS[3], owner) then
      redis.call('ZINCRBY', KEYS[3], ms, owner)
    end
  end
end
