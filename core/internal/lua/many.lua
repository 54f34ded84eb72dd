-- Frees and takes many plain locks, each as the script for one does it: release and acquire are those scripts, as functions of
-- their KEYS and ARGV.
--
-- KEYS       lock hashes, first of those to free
-- ARGV[1]    how many are to be freed
-- ARGV[2]    message of those
-- ARGV[3]    command to publish it with
-- ARGV[2i+2] wire owner of the i-th lock
-- ARGV[2i+3] channel, or lease in ms
--
-- Reply: for each lock that of its script; or the text of the error that its key gave.

local frees = tonumber(ARGV[1])
local freeing, taking = {'', '', ARGV[2], ARGV[3]}, {}
local key, replies = {}, {}

for i = 1, #KEYS do
  local script, args = acquire, taking
  if i <= frees then
    script, args = release, freeing
  end
  key[1], args[1], args[2] = KEYS[i], ARGV[2 * i + 2], ARGV[2 * i + 3]

  -- Every one is protected: a key of a wrong type must not keep the others from being freed or taken.
  local done, reply = pcall(script, key, args)
  if type(reply) == 'table' and reply.err then
    reply = reply.err
  elseif not done then
    reply = tostring(reply)
  end
  replies[i] = reply
end
return replies
