package kinds

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// Plain is the reentrant lock. The lock's hash has one field for the hold. Redisson: RLock.
var Plain = &Kind{
	Name:    "lock",
	Channel: lockChannel,
	Acquire: func(_ Settings, t Try) lua.Call { return lua.Acquire(t.Key, t.Wire, t.Lease) },
	HandOver: func(_ Settings, c Hold, to string, lease time.Duration) lua.Call {
		return lua.Pass(c.Key, c.Wire, to, lease)
	},
	Update:  updateHash,
	Release: releaseHash,
	Renew:   func(c Hold) lua.Renewable { return lua.Renewable{Key: c.Key, Field: c.Wire} },
	Force: func(s Settings, key string, fields []string) lua.Call {
		return lua.ForceRelease(key, fields, s.announce(wire.LockChannel(key)))
	},
	Holders: lua.Holders,
	Present: lua.Present,
	Field:   ownerField,
	Held:    func(fields []string) []string { return fields },
	Locked:  func(s lua.State) bool { return s.Fields > 0 },
}

func lockChannel(key, _ string) string { return wire.LockChannel(key) }

func ownerField(owner string) string { return owner }

func updateHash(_ Settings, c Hold, lease time.Duration) lua.Call {
	return lua.Update(c.Key, c.Wire, c.Total(), lease)
}

func releaseHash(s Settings, c Hold) lua.Call {
	return lua.Release(c.Key, c.Wire, s.announce(wire.LockChannel(c.Key)))
}
