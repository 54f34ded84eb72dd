-- Renews many holds of one client.
--
-- KEYS      for each hold: the lock hash, then the time-out keys of its read levels, if it has any
-- ARGV[1]   lease, ms
-- ARGV[2i]   field of the i-th hold in its hash
-- ARGV[2i+1] number of its time-out keys
--
-- Reply: for each hold 1, renewed; 0, the hold is gone; or the text of the error that its keys gave.

local lease = tonumber(ARGV[1])

-- The lease is never shortened. GT sees to that in one call, as a rule; but it leaves a key without an end as it is.
local function prolong(key)
  local done = redis.pcall('PEXPIRE', key, ARGV[1], 'GT')
  if done ~= 0 then
    return done
  end
  local ttl = redis.pcall('PTTL', key)
  if type(ttl) ~= 'table' and ttl < lease then
    return redis.pcall('PEXPIRE', key, ARGV[1])
  end
  return ttl
end

-- Every call is protected: one key of a wrong type must not keep the others from being renewed.
local function renew(first, field, timeouts)
  local mine = redis.pcall('HEXISTS', KEYS[first], field)
  if mine ~= 1 then
    return mine
  end
  for k = first, first + timeouts do
    local done = prolong(KEYS[k])
    if type(done) == 'table' then
      return done
    end
  end
  return 1
end

local results, first = {}, 1
for i = 1, (#ARGV - 1) / 2 do
  local timeouts = tonumber(ARGV[2 * i + 1])
  local result = renew(first, ARGV[2 * i], timeouts)
  results[i] = type(result) == 'table' and result.err or result
  first = first + 1 + timeouts
end
return results
