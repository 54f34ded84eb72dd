-- Renews many holds of one client.
--
-- KEYS[i]    lock hash
-- ARGV[1]    lease, ms
-- ARGV[1+i]  wire owner of KEYS[i]
--
-- Reply: for each key 1, renewed; 0, the hold is gone; or the text of the error that this key gave.

local lease = tonumber(ARGV[1])

-- Every call is protected: one key of a wrong type must not keep the others from being renewed.
local function renew(key, owner)
  local mine = redis.pcall('HEXISTS', key, owner)
  if mine == 0 or type(mine) == 'table' then
    return mine
  end
  local ttl = redis.pcall('PTTL', key)
  if type(ttl) == 'table' or ttl >= lease then
    return type(ttl) == 'table' and ttl or 1
  end
  local done = redis.pcall('PEXPIRE', key, lease)
  return type(done) == 'table' and done or 1
end

local results = {}
for i, key in ipairs(KEYS) do
  local result = renew(key, ARGV[i + 1])
  results[i] = type(result) == 'table' and result.err or result
end
return results
