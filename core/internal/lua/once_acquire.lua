-- Returns the record of a name, or else takes the lock for a new hold, or repeats a take whose
-- reply was lost. acquire is acquire.lua, as a function of its KEYS and ARGV.
--
-- KEYS[1]  lock hash
-- KEYS[2]  record hash
-- ARGV[1]  wire owner
-- ARGV[2]  lease, ms
-- ARGV[3]  marker: a record to store with the grant; an empty string: none
-- ARGV[4]  binding: what the name is to be bound to with the grant; an empty string: nothing
-- ARGV[5]  TTL of marker and binding, ms
--
-- Reply:
--   1          granted
--   {ttl}      held by another owner; ttl in ms, -1: never expires
--   {ttl, 1}   the name is bound to something else; ttl as above, -2: not held
--   record     a string
--   WRONGKIND  error: the key is a read/write lock

-- Check the lock first. While it is held, a record is not final: it is the holder's marker, or one
-- that an inner level has stored.
local ttl = redis.call('PTTL', KEYS[1])

if ttl == -2 then
  local kept = redis.call('HMGET', KEYS[2], 'record', 'bound')
  if kept[2] and ARGV[4] ~= '' and kept[2] ~= ARGV[4] then
    return {ttl, 1}
  end
  if kept[1] then
    return kept[1]
  end
  if ARGV[3] ~= '' then
    redis.call('HSET', KEYS[2], 'record', ARGV[3], 'marker', ARGV[1], 'ttl', ARGV[5])
  end
  if ARGV[4] ~= '' and not kept[2] then
    redis.call('HSET', KEYS[2], 'bound', ARGV[4], 'binder', ARGV[1])
  end
  if ARGV[3] ~= '' or ARGV[4] ~= '' then
    redis.call('PEXPIRE', KEYS[2], ARGV[5])
  end
end

local reply = acquire({KEYS[1]}, ARGV)
if type(reply) == 'table' and not reply.err and ARGV[4] ~= '' then -- held by another owner
  local bound = redis.call('HGET', KEYS[2], 'bound')
  if bound and bound ~= ARGV[4] then
    return {reply[1], 1}
  end
end
return reply
