package kinds

import (
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// Once is the plain lock whose holder may leave a record. Each core.Once has a copy with terms.
// Redisson has no such lock.
var Once = func() Kind {
	k := *Plain
	k.Name, k.HandOver = "once", nil
	k.Acquire = func(_ Settings, t Try) lua.Call {
		return lua.OnceAcquire(t.Key, t.Terms.RecordKey, t.Wire, t.Lease, t.Terms.Marks)
	}
	k.Look = func(t *Terms, key string) lua.Call { return lua.OnceLook(key, t.RecordKey, t.Marks.Binding) }
	k.Record = func(s Settings, c Hold, r lua.Record) lua.Call {
		return lua.OnceRecord(c.Key, c.Terms.RecordKey, c.Wire, c.Total(), r, s.announce(wire.LockChannel(c.Key)))
	}
	k.Commands = []Commands{{
		For:    "Once",
		Reads:  []string{"HGET RECORD f"},
		Writes: []string{"HSET RECORD f 1", "HDEL RECORD f", "PEXPIRE RECORD 1", "DEL RECORD"},
	}}
	return k
}()

// OnceTerms are what one Once demands of its name.
type OnceTerms struct {
	RecordKey string
	Marks     lua.Marks // an empty Binding: the name may be bound to anything
	// Looks makes a caller that has waited for a holder take its record, or fail with ErrUnrecorded.
	Looks bool
}

// Marked is the Unmark of a Once whose grants leave marks.
func Marked(s Settings, c Hold, r lua.Removal) lua.Call {
	return lua.OnceRelease(c.Key, c.Terms.RecordKey, c.Wire, r, s.announce(wire.LockChannel(c.Key)))
}
