package kinds

import (
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// GuestTerms name the hold that a guest enters.
type GuestTerms struct {
	Host  string // wire owner of that hold; "": the holds are no guests
	Token uint64 // its fencing token, which its guests share; 0: none
}

// Guest returns the kind of the guests of a hold. They have what the hold has, so a guest that wants
// the read side of a writer has the write side. They never queue, and hand nothing over: the waiters
// of their process may not come before the hold has ended, too.
func (k *Kind) Guest(t GuestTerms) *Kind {
	g := *k
	g.GuestTerms, g.RedisQueue, g.HandOver = t, false, nil
	g.Acquire = func(_ Settings, try Try) lua.Call {
		e := lua.Entry{Key: try.Key, Host: k.Field(t.Host), Guest: k.Field(try.Wire)}
		if k.Shared {
			e.Timeout = wire.ReadTimeout(try.Key, try.Wire, 1)
		}
		return lua.Enter(e, try.Lease)
	}
	return &g
}

// Invited reports whether its holds are guests.
func (k *Kind) Invited() bool { return k.Host != "" }

// Invites reports whether holds of the kind may have guests. One permit is not two, and the record of
// a Once belongs to one holder.
func (k *Kind) Invites() bool { return !k.Counted && k.Record == nil }
