package main

import (
	"crypto/rand"

	"github.com/redis/go-redis/v9"
)

// A dialect is a pair of scripts that lock and unlock.
type dialect struct {
	take, give *redis.Script
	// Append the arguments after the key.
	takeArgs, giveArgs func(s *rawSession, command []any) []any
	granted            any // takes's reply for a granted lock
	// A command on the latch's key, if there is one.
	afterGive string
}

var redissonStyle = dialect{
	take: takeScript, takeArgs: ownerAndLease,
	give: giveScript, giveArgs: func(s *rawSession, command []any) []any {
		return append(command, s.self, s.c.lease, s.channel)
	},
}

var redissonLatch = dialect{
	take: takeScript, takeArgs: ownerAndLease,
	give: giveLatchScript, giveArgs: func(s *rawSession, command []any) []any {
		s.latch = "redisson_unlock_latch:{" + s.name + "}:" + rand.Text()
		return append(command, s.self, s.c.lease, s.channel, s.latch, 16000)
	},
	afterGive: "del",
}

// lean does what reqlock's own scripts do.
var lean = dialect{
	take: leanTakeScript, takeArgs: ownerAndLease, granted: int64(1),
	give: leanGiveScript, giveArgs: func(s *rawSession, command []any) []any { return append(command, s.self, s.channel) },
}

var setNX = dialect{
	take: setScript, takeArgs: ownerAndLease, granted: "OK",
	give: compareScript, giveArgs: func(s *rawSession, command []any) []any { return append(command, s.self) },
}

func ownerAndLease(s *rawSession, command []any) []any { return append(command, s.self, s.c.lease) }

// Redisson's two scripts for a plain lock, which the floors send. They leave out the latch that
// Redisson sets with each unlock: it is for retries, which the floors never make, and without it
// they are faster.
//
// KEYS[1] lock hash; ARGV[1] owner, ARGV[2] lease in ms. Reply: nil, granted; otherwise the
// holder's TTL.
var takeScript = redis.NewScript(`
local free = redis.call('EXISTS', KEYS[1]) == 0
if free or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return nil
end
return redis.call('PTTL', KEYS[1])`)

// KEYS[1] lock hash; ARGV[1] owner, ARGV[2] lease in ms, ARGV[3] channel. Reply: nil, not held; 0,
// still held; 1, free.
var giveScript = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[3], '0')
return 1`)

// The script above with the latch: ARGV[4] its key, in the lock's slot, ARGV[5] its TTL in ms.
var giveLatchScript = redis.NewScript(`
local done = redis.call('GET', ARGV[4])
if done then
  return tonumber(done)
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return nil
end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('SET', ARGV[4], 0, 'PX', ARGV[5])
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[3], '0')
redis.call('SET', ARGV[4], 1, 'PX', ARGV[5])
return 1`)

// KEYS[1] lock hash; ARGV[1] owner, ARGV[2] lease in ms. Reply: 1, granted; {ttl}, held by another
// owner.
var leanTakeScript = redis.NewScript(`
local ttl = redis.call('PTTL', KEYS[1])
if ttl == -2 then
  redis.call('HSET', KEYS[1], ARGV[1], '1')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return {ttl}`)

// KEYS[1] lock hash; ARGV[1] owner, ARGV[2] channel. Reply: 1, free; 0, not held.
var leanGiveScript = redis.NewScript(`
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.pcall('PUBLISH', ARGV[2], '0')
return 1`)

// Both for many locks. KEYS: lock hashes. ARGV per lock: 1 to take or 0 to release, owner, and
// lease or channel. Reply per lock: as above. Calls are protected, so that one bad key does not
// stop the others.
var manyKeysScript = redis.NewScript(`
local replies = {}
for i = 1, #KEYS do
  local key, owner, third = KEYS[i], ARGV[3 * i - 1], ARGV[3 * i]
  if ARGV[3 * i - 2] == '1' then
    local ttl = redis.pcall('PTTL', key)
    if ttl == -2 then
      redis.pcall('HSET', key, owner, 1)
      redis.pcall('PEXPIRE', key, third)
      replies[i] = 1
    else
      replies[i] = {ttl}
    end
  else
    local gone = redis.pcall('HDEL', key, owner)
    if gone == 1 then
      redis.pcall('PUBLISH', third, '0')
    end
    replies[i] = gone
  end
end
return replies`)

// A lock that does not announce its release and is not reentrant. KEYS[1] string; ARGV[1] owner,
// ARGV[2] lease in ms.
var (
	setScript     = redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	compareScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`)
)
