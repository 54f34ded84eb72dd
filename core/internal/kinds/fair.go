package kinds

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// Fair is the lock whose waiters queue up in Redis. Each waiter has its own channel.
// Redisson: RFairLock.
var Fair = func() *Kind {
	k := *Plain
	k.Name, k.RedisQueue, k.Channel = "fair", true, wire.FairChannel
	k.Acquire = func(s Settings, t Try) lua.Call {
		return lua.AcquireFair(s.fair(t.Key), t.Wire, t.Lease, t.NotAfter, s.FairAbsentPause)
	}
	k.HandOver = func(s Settings, c Hold, to string, lease time.Duration) lua.Call {
		return lua.PassFair(s.fair(c.Key), c.Wire, to, lease)
	}
	k.Release = func(s Settings, c Hold) lua.Call { return lua.ReleaseFair(s.fair(c.Key), c.Wire) }
	k.Force = func(s Settings, key string, fields []string) lua.Call {
		return lua.ForceReleaseFair(s.fair(key), fields)
	}
	k.Commands = []Commands{{
		For: "fair",
		Reads: []string{"TIME", "LINDEX QUEUE 0", "LRANGE QUEUE 0 0", "LPOS QUEUE owner", "LLEN QUEUE",
			"ZSCORE DEADLINES owner", "ZRANK DEADLINES owner", "ZCARD DEADLINES"},
		Writes: []string{"RPUSH QUEUE owner", "LREM QUEUE 0 owner", "LSET QUEUE 0 owner", "ZADD DEADLINES 1 owner",
			"ZREM DEADLINES owner", "DEL DEADLINES"},
	}}
	return &k
}()

// fair returns a fair lock for its scripts.
func (s Settings) fair(key string) *lua.Fair {
	return &lua.Fair{
		Lock:         key,
		Queue:        wire.FairQueue(key),
		Deadlines:    wire.FairDeadlines(key),
		Budget:       s.FairBudget,
		Grace:        s.FairGrace,
		Counts:       s.CountsListeners,
		Announcement: s.announce(wire.FairChannel(key, "")),
	}
}
