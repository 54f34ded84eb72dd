-- What pass.lua and fair_pass.lua begin with: a hold that is gone already is not handed on again. Not a script of its own.
--
-- KEYS[1]  lock hash
-- ARGV[1]  wire owner of the hold that goes
-- ARGV[2]  wire owner of the hold that comes
-- ARGV[3]  lease of the latter, ms

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
    return 0
  end
  -- This is a repeat: whoever has lost the first reply counts the lease from now on.
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  return 1
end

