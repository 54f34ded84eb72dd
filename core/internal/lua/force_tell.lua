-- Tells holders that they were forced off. This is not a script, but the beginning of those that force.
--
-- Each client of reqlock listens on a channel of its own, so that a holder learns at once that it
-- has lost the lock. The message is the key of the lock. It is a hint: the holder asks Redis. A wire
-- owner of reqlock names its client: that of web-1.4242.k3j9x2ab:7 ends at the colon and has a dot.
-- The owners of Redisson have no dot. Nothing is published for them.

-- Tells the clients of the fields that holders of the key were forced off. prefix is that of the
-- clients' channels. The lock is taken by now: if the user may not publish, that must still succeed.
local function tell(fields, prefix, key)
  local seen = {}
  for _, field in ipairs(fields) do
    local client = string.match(field, '^([%w_.-]+%.%w+):%d+')
    if client and not seen[client] then
      seen[client] = true
      redis.pcall('PUBLISH', prefix .. client, key)
    end
  end
end

