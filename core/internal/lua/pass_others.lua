-- What pass.lua and fenced_pass.lua begin with: does anybody else want the lock, which is to say, listen for its release? After a
-- streak of hand-overs it is not handed on then. Not a script of its own.
--
-- ARGV[4]  how to count who listens: NUMSUB or SHARDNUMSUB, for PUBSUB; missing: no matter who does
-- ARGV[5]  channel
-- ARGV[6]  how many of its subscribers are the caller's own

local function others()
  if not ARGV[4] then
    return false
  end
  local count = redis.pcall('PUBSUB', ARGV[4], ARGV[5])[2] -- nil where that is refused
  return not count or tonumber(count) > tonumber(ARGV[6])
end

