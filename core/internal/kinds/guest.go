package kinds

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// GuestTerms name the hold that a guest enters.
type GuestTerms struct {
	Host   string // wire owner of that hold; "": the holds are no guests
	Permit string // wire owner that took the permits which the guest uses; "": it enters a lock
	Token  uint64 // fencing token of the host, which its guests share; 0: none
}

// Guest returns the kind of the guests of a hold. They have what the hold has, so a guest that wants
// the read side of a writer has the write side. They never queue, and hand nothing over: the waiters
// of their process may not come before the hold has ended, too.
func (k *Kind) Guest(t GuestTerms) *Kind {
	g := *k
	g.GuestTerms, g.RedisQueue, g.HandOver = t, false, nil
	if k.Counted {
		return g.usesPermits()
	}
	g.Acquire = func(_ Settings, try Try) lua.Call {
		e := lua.Entry{Key: try.Key, Host: k.Field(t.Host), Guest: k.Field(try.Wire)}
		if k.Shared {
			e.Timeout = wire.ReadTimeout(try.Key, try.Wire, 1)
		}
		return lua.Enter(e, try.Lease)
	}
	return &g
}

// usesPermits makes k the kind of guests that use the permits of another owner.
func (k *Kind) usesPermits() *Kind {
	k.Acquire = func(s Settings, t Try) lua.Call {
		c := Hold{Terms: t.Terms, Key: t.Key, Wire: t.Wire}
		return lua.EnterPermits(s.Permits(t.Key), c.family(k.Permit), k.Host, t.Lease)
	}
	k.Update = func(s Settings, c Hold, lease time.Duration) lua.Call {
		return lua.UpdateGuestPermits(s.Permits(c.Key), c.family(k.Permit), lease)
	}
	k.Release = func(s Settings, c Hold) lua.Call {
		return lua.LeavePermits(s.Permits(c.Key), c.family(k.Permit))
	}
	k.Renew = func(c Hold) lua.Renewable {
		f := c.family(k.Permit)
		return lua.Renewable{Key: wire.PermitsTaken(c.Key), Field: f.Field(), Permits: f.Count, Family: f.Key}
	}
	k.Present = func(key string, owners []string) lua.Call {
		return lua.PresentPermits(wire.PermitFamily(key, k.Permit), owners)
	}
	return k
}

// Invited reports whether its holds are guests.
func (k *Kind) Invited() bool { return k.Host != "" }

// Invites reports whether holds of the kind may have guests. The record of a Once belongs to one
// holder.
func (k *Kind) Invites() bool { return k.Record == nil }
