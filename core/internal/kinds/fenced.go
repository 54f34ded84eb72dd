package kinds

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// The fenced kinds give each hold a token, from one counter for each name. They differ from the
// kinds without tokens only in the scripts that grant. Redisson: RFencedLock, for Fenced.
var (
	Fenced = fenced(Plain, func(k *Kind) {
		k.Name = "fenced"
		k.Acquire = func(_ Settings, t Try) lua.Call {
			return lua.AcquireFenced(t.Key, wire.TokenCounter(t.Key), t.Wire, t.Lease)
		}
		k.HandOver = func(_ Settings, c Hold, to string, lease time.Duration) lua.Call {
			return lua.PassFenced(c.Key, wire.TokenCounter(c.Key), c.Wire, to, lease)
		}
	})
	FencedFair = fenced(Fair, func(k *Kind) {
		k.Acquire = func(s Settings, t Try) lua.Call {
			return lua.AcquireFencedFair(s.fencedFair(t.Key), t.Wire, t.Lease, t.NotAfter, s.FairAbsentPause)
		}
		k.HandOver = func(s Settings, c Hold, to string, lease time.Duration) lua.Call {
			return lua.PassFencedFair(s.fencedFair(c.Key), c.Wire, to, lease)
		}
	})
	FencedWrite = fenced(Write, func(k *Kind) {
		k.Acquire = func(_ Settings, t Try) lua.Call {
			return lua.AcquireFencedWrite(t.Key, wire.TokenCounter(t.Key), wire.WriteField(t.Wire), t.Lease)
		}
		k.HandOver = func(_ Settings, c Hold, to string, lease time.Duration) lua.Call {
			return lua.PassFenced(c.Key, wire.TokenCounter(c.Key), wire.WriteField(c.Wire), wire.WriteField(to), lease)
		}
	})
)

// fenced returns a kind with tokens, which change makes of a copy of the kind without.
func fenced(unfenced *Kind, change func(*Kind)) *Kind {
	k := *unfenced
	k.Unfenced = unfenced
	k.Commands = append([]Commands{{
		For:    "fenced",
		Reads:  []string{"GET COUNTER"},
		Writes: []string{"INCR COUNTER"},
	}}, k.Commands...)
	change(&k)
	return &k
}

// fencedFair returns a fair lock for its scripts that draw tokens.
func (s Settings) fencedFair(key string) *lua.Fair {
	f := s.fair(key)
	f.Counter = wire.TokenCounter(key)
	return f
}
