package kinds

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// Semaphore has permits. Redis has the number of free ones, and a sorted set of those that are taken
// by when they expire. Each core.Semaphore has a copy with terms. Redisson:
// RPermitExpirableSemaphore.
var Semaphore = Kind{
	Name:    "semaphore",
	Rank:    2,
	Counted: true,
	Terms:   Terms{PermitTerms: PermitTerms{Takes: 1}},
	Channel: func(key, _ string) string { return wire.PermitChannel(key) },
	Acquire: func(s Settings, t Try) lua.Call {
		d := lua.Declaration{Permits: t.Terms.Declares, Age: s.Age}
		return lua.AcquirePermits(s.Permits(t.Key), t.Wire, t.Terms.Takes, t.Lease, d)
	},
	HandOver: func(s Settings, c Hold, to string, lease time.Duration) lua.Call {
		return lua.PassPermits(s.Permits(c.Key), c.Wire, to, c.Terms.Takes, lease)
	},
	Update: func(s Settings, c Hold, lease time.Duration) lua.Call {
		return lua.UpdatePermits(s.Permits(c.Key), c.Wire, c.Terms.Takes, lease)
	},
	Release: func(s Settings, c Hold) lua.Call {
		if c.Invites {
			return lua.LeavePermits(s.Permits(c.Key), c.family(c.Wire))
		}
		return lua.ReleasePermits(s.Permits(c.Key), c.Wire, c.Terms.Takes)
	},
	Renew: func(c Hold) lua.Renewable {
		return lua.Renewable{Key: wire.PermitsTaken(c.Key), Field: c.Wire, Permits: c.Terms.Takes}
	},
	Force: func(s Settings, key string, owners []string) lua.Call {
		return lua.ForceReleasePermits(s.Permits(key), key, owners)
	},
	Field:   ownerField,
	Held:    permitOwners,
	Locked:  func(s lua.State) bool { return s.Fields > 0 },
	Holders: func(key string) lua.Call { return lua.PermitHolders(wire.PermitsTaken(key)) },
	Present: func(key string, ids []string) lua.Call {
		return lua.PresentPermits(wire.PermitsTaken(key), ids)
	},
	Commands: []Commands{{
		For: "permits",
		Reads: []string{"TIME", "GET KEY", "EXISTS KEY", "GET DECLARED", "ZSCORE TAKEN owner", "ZMSCORE TAKEN owner",
			"ZCARD TAKEN", "ZCOUNT TAKEN 0 1", "ZRANGE TAKEN 0 0", "ZRANGEBYSCORE TAKEN 0 1", "PTTL TAKEN",
			"EXISTS FAMILY", "ZSCORE FAMILY owner", "ZCARD FAMILY", "ZRANGE FAMILY 0 -1", "PTTL FAMILY"},
		Writes: []string{"INCRBY KEY 1", "SET KEY 1", "SET DECLARED 1", "PEXPIRE DECLARED 1", "ZADD TAKEN 1 owner",
			"ZREM TAKEN owner", "ZREMRANGEBYSCORE TAKEN 0 1", "PEXPIRE TAKEN 1", "PERSIST TAKEN",
			"ZADD FAMILY 1 owner", "ZREM FAMILY owner", "ZREMRANGEBYSCORE FAMILY 0 1", "PEXPIRE FAMILY 1", "DEL FAMILY"},
	}},
}

// PermitTerms are what one handle of a semaphore demands.
type PermitTerms struct {
	Takes    int // how many permits each Acquire takes
	Declares int // how many there are; 0: as Redis has it
}

// Together returns how many waiters may try at once before one is refused: as many as there may be
// permits for.
func (k *Kind) Together() int32 {
	if k.Counted && k.Declares > 0 {
		return int32(min(k.Declares, math.MaxInt32))
	}
	return math.MaxInt32
}

// Permits returns a semaphore for its scripts.
func (s Settings) Permits(key string) *lua.Semaphore {
	return &lua.Semaphore{
		Free:         key,
		Taken:        wire.PermitsTaken(key),
		Declared:     wire.PermitsDeclared(key),
		Announcement: lua.Announcement{Channel: wire.PermitChannel(key), Commands: s.Publish},
	}
}

// family returns the family of the hold's permits, which owner took.
func (c Hold) family(owner string) lua.Family {
	return lua.Family{Key: wire.PermitFamily(c.Key, owner), Owner: owner, Count: c.Terms.Takes, Member: c.Wire}
}

// permitOwners returns the owners of permits. An owner of reqlock may have several, and is named by
// the first.
func permitOwners(ids []string) []string {
	sorted := slices.Sorted(slices.Values(ids))
	return slices.DeleteFunc(slices.Clone(sorted), func(id string) bool {
		i := strings.LastIndexByte(id, ':')
		if i < 0 {
			return false
		}
		_, further := slices.BinarySearch(sorted, id[:i])
		return further
	})
}
