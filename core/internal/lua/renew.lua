-- Renews many holds of one client.
--
-- KEYS       the lock hash of each hold, then the time-out keys of all read levels in that order
-- ARGV[1]    lease, ms
-- ARGV[2]    number of holds
-- ARGV[2+i]  field of the i-th hold in its hash
-- ARGV[..]   for each hold with time-out keys: its index, the number of its keys, and its lease, ms
--
-- Reply: for each hold 1 if it was renewed, 0 if it is gone, or the text of the error of its keys.
--
-- Redis serves no other client while the script runs, so it does as little for each hold as
-- possible.

-- Calls are protected: one key of a wrong type must not stop the others from being renewed.
local call, KEYS, ARGV = redis.pcall, KEYS, ARGV
local holds = tonumber(ARGV[2])

-- Prolongs a key, never shortens it. Usually one PEXPIRE GT is enough, but it leaves a key without
-- a TTL unchanged. A missing key is restored if it has a value.
local function prolong(key, lease, value)
  local done = call('PEXPIRE', key, lease, 'GT')
  if done == 0 then
    local ttl = call('PTTL', key)
    if type(ttl) == 'table' or ttl >= tonumber(lease) then
      done = ttl
    elseif ttl == -2 and value then
      done = call('SET', key, value, 'PX', lease)
      return done.err or 1
    else
      done = call('PEXPIRE', key, lease)
    end
  end
  return type(done) == 'table' and done.err or 1
end

local leases = {} -- by index, of the holds with time-out keys
for a = holds + 3, #ARGV, 3 do
  leases[tonumber(ARGV[a])] = ARGV[a + 2]
end

local results = {}
for i = 1, holds do
  local mine = call('HEXISTS', KEYS[i], ARGV[2 + i])
  if mine == 1 then
    results[i] = prolong(KEYS[i], leases[i] or ARGV[1])
  else
    results[i] = mine == 0 and 0 or mine.err
  end
end

local first = holds + 1
for a = holds + 3, #ARGV, 3 do
  local i, timeouts = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  for k = first, first + timeouts - 1 do
    if results[i] == 1 then
      results[i] = prolong(KEYS[k], leases[i], '1')
    end
  end
  first = first + timeouts
end
return results
