-- Takes a lock from the given holders and tells them. If the lock is free then, or only readers are
-- left of a writer and its guests, publishes the release. Any other owner keeps it, because its loss was not reported. See also force_take.lua.
--
-- KEYS[1]     lock hash
-- ARGV[1]     number of fields, n
-- ARGV[2..]   fields of the holders
-- ARGV[n+2]   prefix of the clients' channels
-- ARGV[n+3]   channel
-- ARGV[n+4]   message
-- ARGV[n+5..] commands to publish with: PUBLISH, SPUBLISH or both
--
-- Reply: see force_take.lua.

local n = tonumber(ARGV[1])
local taken, readWrite, reply = take(2, n, ARGV[n + 2])

-- Reports whether only readers are left of a writer and its guests: of those that have become readers.
-- In write mode there are few fields.
local function read()
  if not readWrite or redis.call('HGET', KEYS[1], 'mode') ~= 'write' then
    return false
  end
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, -6) == ':write' then
      return false
    end
  end
  return true
end

if taken == 0 or reply[1] > 0 and not read() then
  return reply
end

if reply[1] > 0 then
  redis.call('HSET', KEYS[1], 'mode', 'read') -- other readers may enter
elseif readWrite then
  redis.call('DEL', KEYS[1]) -- its mode is left
end
for i = n + 5, #ARGV do
  redis.pcall(ARGV[i], ARGV[n + 3], ARGV[n + 4])
end
return reply
