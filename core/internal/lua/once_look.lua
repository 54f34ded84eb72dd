-- Returns the record of a name without taking the lock.
--
-- KEYS[1]  lock hash
-- KEYS[2]  record hash
-- ARGV[1]  binding: what the caller wants the name for; an empty string: anything
--
-- Reply:
--   record    a string
--   {ttl}     no record, or the lock is held; ttl of the lock in ms, -1: never expires, -2: not held
--   {ttl, 1}  the name is bound to something else; ttl as above

local ttl = redis.call('PTTL', KEYS[1])
local kept = redis.call('HMGET', KEYS[2], 'record', 'bound', 'stale', 'owner')
if kept[2] and ARGV[1] ~= '' and kept[2] ~= ARGV[1] then
  return {ttl, 1}
end
-- One that goes stale is given out while another hold renews it.
if kept[1] and (ttl == -2 or kept[3] and redis.call('HEXISTS', KEYS[1], kept[4]) == 0) then
  return kept[1]
end
return {ttl}
