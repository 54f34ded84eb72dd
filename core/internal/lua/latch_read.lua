-- Reads a latch. This is not a script, but the beginning of those that need the count.

-- Returns the count as a string of digits, or nil if there is none, and an error if the key has
-- something else.
local function read(key)
  local count = redis.call('GET', key)
  if count and (#count > 18 or not string.find(count, '^%-?%d+$')) then
    return nil, redis.error_reply('WRONGKIND the key is not the count of a latch')
  end
  return count or nil
end

