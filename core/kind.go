package core

import (
	"math/rand/v2"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A kind describes one kind of lock. The engine is the same for all of them.
type kind struct {
	name    string
	of      *kind // the kind that a fenced kind is with tokens; nil: its holds have none
	rank    int   // among locks of one name, a MultiLock acquires lower ranks first
	side    bool  // one side of a read/write lock
	shared  bool  // several owners may hold it at once
	queued  bool  // Redis keeps the queue, so every waiter tries by itself
	channel func(key, field string) string
	acquire func(e *engine, t try) lua.Call
	// handOver moves the lock to another hold; nil: the kind has no hand-over.
	handOver func(e *engine, g holdCounts, to string, lease time.Duration) lua.Call
	update   func(e *engine, g holdCounts, lease time.Duration) lua.Call
	release  func(e *engine, g holdCounts) lua.Call
	// free is a release that also removes marks of the grant; nil: it has none.
	free  func(e *engine, g holdCounts, r lua.Removal) lua.Call
	renew func(g holdCounts) lua.Renewable
	force func(e *engine, key string, fields []string) lua.Call
	field func(owner string) string // names an owner's field in the lock's hash
	// holds reports whether a field of the lock's hash is a hold of this kind.
	holds  func(field string) bool
	locked func(lua.State) bool

	// Of a Once; nil for other kinds.
	look   func(t *terms, key string) lua.Call
	record func(e *engine, g holdCounts, r lua.Record) lua.Call
	terms  // what a Once demands; zero for other kinds
}

// reenters reports whether an owner that has a hold of another kind may enter it as this kind. The
// sides of a read/write lock have fields and scripts of their own, and only a fenced hold has a
// token. A hold of the read side has none either, but it refuses all writers, with ErrUpgrade.
func (k *kind) reenters(held *kind) bool {
	return k.side == held.side && (!k.fenced() || held.fenced() || held.shared)
}

// fenced reports whether holds of the kind have fencing tokens.
func (k *kind) fenced() bool { return k.of != nil }

// withTokens returns the kind that gives fencing tokens to holds of k; nil: there is none.
func (k *kind) withTokens() *kind {
	for _, f := range fencedKinds {
		if f == k || f.of == k {
			return f
		}
	}
	return nil
}

// class returns the class of its waiters.
func (k *kind) class() claim.Class {
	switch {
	case k.shared:
		return claim.Shared
	case k.queued:
		return claim.Remote
	}
	return claim.Exclusive
}

// freeing returns the call that frees a hold and removes marks of its grant.
func (k *kind) freeing(e *engine, g holdCounts, r lua.Removal) lua.Call {
	if k.free == nil {
		return k.release(e, g)
	}
	return k.free(e, g, r)
}

// A try is one attempt to acquire.
type try struct {
	terms      *terms
	key, field string
	lease      time.Duration
	// Queued kinds: the last moment to enter the queue, by the server's clock in ms; 0: do not.
	notAfter int64
}

// A waiter for a fair lock that dies leaves its place in Redis's queue behind. Each waiter listens
// on its own channel, so an attempt that finds the lock free can see whether the first in the queue
// still listens. If not, attempts look for all that do not. Those that have not listened for
// pauses.absent are dropped, and so is a first waiter that listens but leaves the free lock alone
// for as long: it is frozen, and queues up again when it goes on. A live waiter that does not hear
// its channel tries more often than that, so it keeps its place.
const (
	absentPause = 2 * time.Second // between two checks of an absent waiter
	// fairPoll is the longest time between two attempts of a waiter that no other waiter of this
	// process is before, or that does not hear its channel.
	fairPoll = 5 * time.Second
)

// fairPoll returns how long a waiter for a fair lock sleeps at most if no other waiter polls for it.
// Others may drop one that is silent for longer.
func (e *engine) fairPoll() time.Duration {
	return min(e.opts.PollInterval, fairPoll, e.opts.FairWaitTimeout/4)
}

// fairPause returns how long a waiter pauses that hears its channel and has another waiter of this
// process before it: that one finds the lock free if a message was lost. place is its place in
// Redis's queue, from 1. The pauses grow with the place, so that a crowd of any size sends about as
// many commands as a few dozen waiters.
func fairPause(poll time.Duration, place int) time.Duration {
	pause := poll + poll/8*time.Duration(place-1)
	return pause - rand.N(poll/5+1)
}

var (
	plainLock = &kind{
		name:    "lock",
		channel: lockChannel,
		acquire: func(_ *engine, t try) lua.Call { return lua.Acquire(t.key, t.field, t.lease) },
		handOver: func(_ *engine, g holdCounts, to string, lease time.Duration) lua.Call {
			return lua.Pass(g.key, g.field, to, lease)
		},
		update:  updateHash,
		release: releaseHash,
		renew:   renewHash,
		force:   forceHash,
		field:   ownerField,
		holds:   anyField,
		locked:  anyLocked,
	}
	fairLock = &kind{
		name:    "fair",
		queued:  true,
		channel: wire.FairChannel,
		acquire: func(e *engine, t try) lua.Call {
			return lua.AcquireFair(e.fair(t.key), t.field, t.lease, t.notAfter, absentPause)
		},
		handOver: func(e *engine, g holdCounts, to string, lease time.Duration) lua.Call {
			return lua.PassFair(e.fair(g.key), g.field, to, lease)
		},
		update:  updateHash,
		release: func(e *engine, g holdCounts) lua.Call { return lua.ReleaseFair(e.fair(g.key), g.field) },
		renew:   renewHash,
		force: func(e *engine, key string, fields []string) lua.Call {
			return lua.ForceReleaseFair(e.fair(key), fields)
		},
		field:  ownerField,
		holds:  anyField,
		locked: anyLocked,
	}
	writeLock = &kind{
		name:    "write",
		side:    true,
		channel: readWriteChannel,
		acquire: func(_ *engine, t try) lua.Call {
			return lua.AcquireWrite(t.key, wire.WriteField(t.field), t.lease)
		},
		handOver: func(_ *engine, g holdCounts, to string, lease time.Duration) lua.Call {
			return lua.Pass(g.key, wire.WriteField(g.field), wire.WriteField(to), lease)
		},
		update:  updateReadWrite,
		release: releaseReadWrite,
		renew:   renewReadWrite,
		force: func(e *engine, key string, fields []string) lua.Call {
			a := e.announce(wire.ReadWriteChannel(key))
			a.Message = wire.Unblocked
			return lua.ForceRelease(key, fields, a)
		},
		field:  wire.WriteField,
		holds:  wire.IsWriteField,
		locked: func(s lua.State) bool { return s.Mode == "write" },
	}
	readLock = &kind{
		name:    "read",
		rank:    1,
		side:    true,
		shared:  true,
		channel: readWriteChannel,
		acquire: func(_ *engine, t try) lua.Call {
			return lua.AcquireRead(t.key, wire.ReadTimeout(t.key, t.field, 1), t.field, t.lease)
		},
		update:  updateReadWrite,
		release: releaseReadWrite,
		renew:   renewReadWrite,
		force: func(e *engine, key string, fields []string) lua.Call {
			return lua.ForceRelease(key, fields, e.announce(wire.ReadWriteChannel(key)))
		},
		field:  ownerField,
		holds:  func(field string) bool { return field != wire.ModeField && !wire.IsWriteField(field) },
		locked: func(s lua.State) bool { return s.Mode == "read" || s.Mode == "write" && s.Fields > 2 },
	}
)

// A fenced kind differs from the kind without tokens only in the scripts that grant. So both have
// one name, but for the plain lock, whose fenced form is a kind in Redisson.
var (
	fencedLock = func() *kind {
		k := *plainLock
		k.name, k.of = "fenced", plainLock
		k.acquire = func(_ *engine, t try) lua.Call {
			return lua.AcquireFenced(t.key, wire.TokenCounter(t.key), t.field, t.lease)
		}
		k.handOver = func(_ *engine, g holdCounts, to string, lease time.Duration) lua.Call {
			return lua.PassFenced(g.key, wire.TokenCounter(g.key), g.field, to, lease)
		}
		return &k
	}()
	fencedFair = func() *kind {
		k := *fairLock
		k.of = fairLock
		k.acquire = func(e *engine, t try) lua.Call {
			return lua.AcquireFencedFair(e.fencedFair(t.key), t.field, t.lease, t.notAfter, absentPause)
		}
		k.handOver = func(e *engine, g holdCounts, to string, lease time.Duration) lua.Call {
			return lua.PassFencedFair(e.fencedFair(g.key), g.field, to, lease)
		}
		return &k
	}()
	fencedWrite = func() *kind {
		k := *writeLock
		k.of = writeLock
		k.acquire = func(_ *engine, t try) lua.Call {
			return lua.AcquireFencedWrite(t.key, wire.TokenCounter(t.key), wire.WriteField(t.field), t.lease)
		}
		k.handOver = func(_ *engine, g holdCounts, to string, lease time.Duration) lua.Call {
			return lua.PassFenced(g.key, wire.TokenCounter(g.key), wire.WriteField(g.field), wire.WriteField(to), lease)
		}
		return &k
	}()
	fencedKinds = []*kind{fencedLock, fencedFair, fencedWrite}
)

func lockChannel(key, _ string) string      { return wire.LockChannel(key) }
func readWriteChannel(key, _ string) string { return wire.ReadWriteChannel(key) }
func ownerField(owner string) string        { return owner }
func anyField(string) bool                  { return true }
func anyLocked(s lua.State) bool            { return s.Fields > 0 }

// announce returns what a release publishes on a channel.
func (e *engine) announce(channel string) lua.Announcement {
	return lua.Announcement{Channel: channel, Message: wire.Unlocked, Commands: e.publishMode().publishCommands()}
}

// Locks with one hash field per hold.

func updateHash(_ *engine, g holdCounts, lease time.Duration) lua.Call {
	return lua.Update(g.key, g.field, g.Total(), lease)
}

func releaseHash(e *engine, g holdCounts) lua.Call {
	return lua.Release(g.key, g.field, e.announce(wire.LockChannel(g.key)))
}

func renewHash(g holdCounts) lua.Renewable { return lua.Renewable{Key: g.key, Field: g.field} }

func forceHash(e *engine, key string, fields []string) lua.Call {
	return lua.ForceRelease(key, fields, e.announce(wire.LockChannel(key)))
}

// fair returns a fair lock for its scripts.
func (e *engine) fair(key string) *lua.Fair {
	f := &lua.Fair{
		Lock:         key,
		Queue:        wire.FairQueue(key),
		Deadlines:    wire.FairDeadlines(key),
		Budget:       e.opts.FairWaitTimeout,
		Grace:        e.pauses.absent,
		Counts:       e.countsListeners(),
		Announcement: e.announce(wire.FairChannel(key, "")),
	}
	return f
}

// fencedFair returns a fair lock for its scripts that draw tokens.
func (e *engine) fencedFair(key string) *lua.Fair {
	f := e.fair(key)
	f.Counter = wire.TokenCounter(key)
	return f
}

// Read/write locks. Both sides of an owner are one hold.

func updateReadWrite(e *engine, g holdCounts, lease time.Duration) lua.Call {
	h := lua.ReadWriteHold{
		Key:          g.key,
		Timeouts:     g.timeouts(),
		Owner:        g.field,
		Reads:        int(g.Shared),
		Writes:       int(g.Exclusive),
		Certain:      !e.inCluster(),
		WriteMessage: wire.Unblocked,
	}
	h.Prefix, h.Suffix = wire.ReadTimeouts(g.key)
	return lua.UpdateReadWrite(h, max(lease, g.need), e.announce(wire.ReadWriteChannel(g.key)))
}

func releaseReadWrite(e *engine, g holdCounts) lua.Call {
	g.Levels, g.need = claim.Levels{}, 0
	return updateReadWrite(e, g, 0)
}

func renewReadWrite(g holdCounts) lua.Renewable {
	r := lua.Renewable{Key: g.key, Field: g.field, Timeouts: g.timeouts()[:g.Shared]}
	if g.Exclusive > 0 {
		r.Field = wire.WriteField(g.field)
	}
	return r
}
