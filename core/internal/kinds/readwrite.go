package kinds

import (
	"slices"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// Read and Write are the sides of a read/write lock. The lock's hash has a field "mode" and one for
// each side of each owner. Each read level has a key whose TTL is its lease. Redisson:
// RReadWriteLock.
var (
	Read = &Kind{
		Name:      "read",
		Rank:      1,
		Shared:    true,
		ReadWrite: true,
		Channel:   readWriteChannel,
		Acquire: func(_ Settings, t Try) lua.Call {
			return lua.AcquireRead(t.Key, wire.ReadTimeout(t.Key, t.Wire, 1), t.Wire, t.Lease)
		},
		Update:  updateReadWrite,
		Release: releaseReadWrite,
		Renew:   renewReadWrite,
		Force: func(s Settings, key string, fields []string) lua.Call {
			return lua.ForceRelease(key, fields, s.announce(wire.ReadWriteChannel(key)))
		},
		Holders:  lua.Holders,
		Present:  lua.Present,
		Field:    ownerField,
		Held:     readers,
		Locked:   func(s lua.State) bool { return s.Mode == "read" || s.Mode == "write" && s.Fields > 2 },
		Commands: readWriteCommands,
	}
	Write = &Kind{
		Name:       "write",
		ReadWrite:  true,
		Downgraded: Read,
		Channel:    readWriteChannel,
		Acquire: func(_ Settings, t Try) lua.Call {
			return lua.AcquireWrite(t.Key, wire.WriteField(t.Wire), t.Lease)
		},
		HandOver: func(_ Settings, c Hold, to string, lease time.Duration) lua.Call {
			return lua.Pass(c.Key, wire.WriteField(c.Wire), wire.WriteField(to), lease)
		},
		Update:   updateReadWrite,
		Release:  releaseReadWrite,
		Renew:    renewReadWrite,
		Force:    forceWriter,
		Holders:  lua.Holders,
		Present:  lua.Present,
		Field:    wire.WriteField,
		Held:     writers,
		Locked:   func(s lua.State) bool { return s.Mode == "write" },
		Commands: readWriteCommands,
	}
	readWriteCommands = []Commands{{
		For:    "read/write",
		Reads:  []string{"EXISTS KEY", "PTTL TIMEOUT"},
		Writes: []string{"HSETNX KEY f 1", "SET TIMEOUT 1", "DEL TIMEOUT"},
	}}
)

func readWriteChannel(key, _ string) string { return wire.ReadWriteChannel(key) }

// readers returns the fields of readers. The read levels beside a writer are the writer's own.
func readers(fields []string) []string {
	if slices.ContainsFunc(fields, wire.IsWriteField) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == wire.ModeField })
}

func writers(fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return !wire.IsWriteField(f) })
}

func updateReadWrite(s Settings, c Hold, lease time.Duration) lua.Call {
	h := lua.ReadWriteHold{
		Key:          c.Key,
		Timeouts:     c.timeouts(),
		Owner:        c.Wire,
		Reads:        int(c.Shared),
		Writes:       int(c.Exclusive),
		Certain:      !s.Cluster,
		WriteMessage: wire.Unblocked,
	}
	h.Prefix, h.Suffix = wire.ReadTimeouts(c.Key)
	return lua.UpdateReadWrite(h, max(lease, c.Need), s.announce(wire.ReadWriteChannel(c.Key)))
}

func releaseReadWrite(s Settings, c Hold) lua.Call {
	c.Counts, c.Need = claim.Counts{}, 0
	return updateReadWrite(s, c, 0)
}

func renewReadWrite(c Hold) lua.Renewable {
	r := lua.Renewable{Key: c.Key, Field: c.Wire, Timeouts: c.timeouts()[:c.Shared]}
	if c.Exclusive > 0 {
		r.Field = wire.WriteField(c.Wire)
	}
	return r
}

// timeouts returns the keys of all shared levels that the hold has ever had.
func (c Hold) timeouts() []string {
	keys := make([]string, c.Deepest)
	for i := range keys {
		keys[i] = wire.ReadTimeout(c.Key, c.Wire, i+1)
	}
	return keys
}

// forceWriter takes the lock from writers, with their read levels, which have fields of their own.
func forceWriter(s Settings, key string, fields []string) lua.Call {
	a := s.announce(wire.ReadWriteChannel(key))
	a.Message = wire.Unblocked
	return lua.ForceRelease(key, fields, a)
}
