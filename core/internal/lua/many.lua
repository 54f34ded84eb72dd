-- Frees and takes many plain locks. release and acquire are the scripts for one lock, as functions
-- of their KEYS and ARGV.
--
-- KEYS        lock hashes, first those to free
-- ARGV[1]     number of locks to free
-- ARGV[2]     message of their releases
-- ARGV[3]     command to publish it with
-- ARGV[2i+2]  wire owner of the i-th lock
-- ARGV[2i+3]  channel of its release, or its lease in ms
--
-- Reply: for each lock the reply of its script, or the text of its error.

local frees = tonumber(ARGV[1])
local freeing, taking = {'', '', ARGV[2], ARGV[3]}, {}
local key, replies = {}, {}

for i = 1, #KEYS do
  local script, args = acquire, taking
  if i <= frees then
    script, args = release, freeing
  end
  key[1], args[1], args[2] = KEYS[i], ARGV[2 * i + 2], ARGV[2 * i + 3]

  -- Calls are protected: a key of a wrong type must not stop the others from being freed or taken.
  local done, reply = pcall(script, key, args)
  if type(reply) == 'table' and reply.err then
    reply = reply.err
  elseif not done then
    reply = tostring(reply)
  end
  replies[i] = reply
end
return replies
