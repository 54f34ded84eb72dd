-- Sets the hold count of a hold that must be there, and prolongs it where the new lease is longer than what is left.
-- Re-entry, partial release and extension are all this one script.
--
-- KEYS[1]  lock hash
-- ARGV[1]  wire owner
-- ARGV[2]  hold count
-- ARGV[3]  lease, ms; 0 leaves the time to live as it is
--
-- Reply: 1, done; 0, the hold is gone.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end

-- The first write needs no memory, and may change nothing: after it Redis refuses none, also when its memory is full.
local lease = tonumber(ARGV[3])
if lease > 0 and redis.call('PTTL', KEYS[1]) < lease then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
else
  redis.pcall('PEXPIRE', KEYS[1], 1, 'GT')
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
