-- Tells which commands the server has and the user may run, without running any that writes. A
-- server before Redis 7.0 cannot tell: there, commands that only read are tried.
--
-- KEYS[1]  a key that does not exist
-- ARGV     for each command: 1 if it only reads, the number of its words, and its words
--
-- Reply: for each command 1 if it can be run, as far as is known; 0 if the user may not run it; -1
-- if the server does not have it.

local check = redis.acl_check_cmd

local function ability(reads, words)
  if check then
    local known, permitted = pcall(check, unpack(words))
    return not known and -1 or permitted and 1 or 0
  end
  local reply = reads and redis.pcall(unpack(words))
  local err = type(reply) == 'table' and reply.err or ''
  return string.find(string.lower(err), 'unknown', 1, true) and -1 or 1
end

local abilities, a = {}, 1
while a < #ARGV do
  local n = tonumber(ARGV[a + 1])
  local words = {}
  for i = 1, n do
    words[i] = ARGV[a + 1 + i]
  end
  table.insert(abilities, ability(ARGV[a] == '1', words))
  a = a + 2 + n
end
return abilities
