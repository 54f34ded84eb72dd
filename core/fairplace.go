package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A fairPlace is a waiter's place in the queue that Redis keeps. The caller's goroutine uses it, and so
// does a hand-over while the waiter is the heir.
type fairPlace struct {
	owner     uint64          // the number of the wire owner in the queue
	wire      string          // the wire owner's name in Redis
	channel   *hub.Channel    // where Redis tells this waiter that it is first; nil: not subscribed
	leftovers claim.Leftovers // what Redis may have of the wire owner
	clock     int64           // the server's clock in ms, from the last reply; 0: unknown
	read      clock.Instant   // when that reply was read
	expires   clock.Instant   // when the place has expired at the latest, by the replies so far
}

// answered notes a reply of Redis to an attempt of a waiter that it keeps in its queue. The place
// expires after the lease of the holder and FairWaitTimeout for each place before it; the deadline in
// Redis may be up to half of FairWaitTimeout later.
func (p *fairPlace) answered(a lua.Answer, now clock.Instant, budget time.Duration) {
	p.clock, p.read = a.Now, now
	if a.Place > 0 {
		p.expires = clock.Later(p.expires, now.Add(max(a.TTL, 0)).Add(time.Duration(a.Place+1)*budget))
	}
}

// fairPlace returns the waiter's place in the queue that Redis keeps; nil: Redis keeps none.
func (w *waiter) fairPlace() *fairPlace {
	if !w.kind.RedisQueue {
		return nil
	}
	return &w.aside.fairPlace
}

// notAfter returns the latest time, by the server's clock in ms, at which an attempt may queue up
// in Redis. A command that arrives later would add a place for a waiter that is gone. The server's
// clock must be known; until then the script does not queue up.
func (w *waiter) notAfter() int64 {
	p, eng := w.fairPlace(), w.entry.engine()
	return p.clock + (eng.clock().Since(p.read) + eng.opts.CommandTimeout).Milliseconds()
}

// pollsForOthersLocked reports whether w is the first of this process that waits for a fair lock. It
// finds the lock free if another waiter has missed its message, and notifies that one.
func (w *waiter) pollsForOthersLocked() bool {
	return w.fairPlace() != nil && w.entry.queue.Waiters()[0] == &w.Waiter
}

// inTime returns how long w may be silent, d at most, if it may not hear its channel or polls for
// others. Other waiters for a fair lock may drop one that is silent for longer.
func (w *waiter) inTime(d time.Duration) time.Duration {
	if w.fairPlace() == nil {
		return d
	}
	return min(d, w.entry.engine().fairPoll())
}

// leaveFairPlace unsubscribes from the waiter's own channel. Without a lease, it also cleans up the
// waiter's place in Redis's queue.
func (w *waiter) leaveFairPlace(lease *level) {
	p, eng := w.fairPlace(), w.entry.engine()
	if p == nil {
		return
	}
	if p.channel != nil {
		eng.hub.Unsubscribe(p.channel, w)
	}
	if lease == nil {
		w.cleanUp(p.wire, p.leftovers)
	}
}
