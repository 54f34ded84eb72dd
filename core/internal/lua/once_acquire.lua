-- Returns the record of a name, or else takes the lock for a new hold, or repeats a take whose
-- reply was lost. A stale record is renewed: one caller without marks takes the lock beside it, and
-- the others get the record meanwhile. acquire is acquire.lua, as a function of its KEYS and ARGV.
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
--   2          granted beside a stale record
--   {ttl}      held by another owner; ttl in ms, -1: never expires
--   {ttl, 1}   the name is bound to something else; ttl as above, -2: not held
--   record     a string
--   WRONGKIND  error: the key is a read/write lock

-- Check the lock first. While it is held, a record is not final: it is the holder's marker, or one
-- that an inner level has stored. Only one that goes stale is that of an earlier hold.
local ttl = redis.call('PTTL', KEYS[1])
local kept = redis.call('HMGET', KEYS[2], 'record', 'bound', 'stale', 'owner')

if ttl == -2 then
  if kept[2] and ARGV[4] ~= '' and kept[2] ~= ARGV[4] then
    return {ttl, 1}
  end
  local stale = kept[3] and ARGV[5] == '0' and redis.call('PTTL', KEYS[2]) <= tonumber(kept[3])
  if kept[1] and not stale then
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
if type(reply) == 'table' and not reply.err then -- held by another owner
  if kept[2] and ARGV[4] ~= '' and kept[2] ~= ARGV[4] then
    return {reply[1], 1}
  end
  if kept[3] and redis.call('HEXISTS', KEYS[1], kept[4]) == 0 then
    return kept[1]
  end
end
return reply == 1 and kept[3] and kept[4] ~= ARGV[1] and 2 or reply
