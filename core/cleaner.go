package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/schedule"
)

// The cleaner frees in the background what may have been left in Redis: holds whose release did not get through, whose
// acquire was granted when it was not wanted any more, or for whom a stray try may yet arrive. Since the field of a hold is
// never used again, freeing it once more does no harm.
//
// A cleanup is pending from add until one of these:
//
//	Redis has answered, and no stray can be on its way
//	Redis has answered, CommandTimeout after it was first known to answer again: strays have arrived by then
//	the lease is over
//
// An outage holds strays back: commands that were given up, on connections that are closed by now, are executed when it ends, in
// any order. So it is not the time since a command was given up that counts, but the time since Redis answers again.
type cleaner struct {
	c        *engine
	freed    func(key string) // wakes those who wait for a lock that was freed
	schedule *schedule.Schedule[*cleanup]

	mu      sync.Mutex
	pending map[*cleanup]struct{}
	closed  bool
}

type cleanup struct {
	call     lua.Call
	counts   holdCounts
	strays   bool      // may be on their way
	calm     time.Time // when Redis was first heard of since the last command that was not answered; zero: not yet
	expires  time.Time // when Redis has dropped the hold by itself
	failures int
	entry    schedule.Entry[*cleanup]
}

func newCleaner(c *engine, freed func(key string)) *cleaner {
	cl := &cleaner{c: c, freed: freed, pending: make(map[*cleanup]struct{})}
	cl.schedule = schedule.New(time.Millisecond, func(due []*cleanup) {
		for _, u := range due {
			c.background.Go(func() { cl.run(u) })
		}
	})
	return cl
}

// add has a call free what may be left of a wire owner: soon if something may be there, or else, as Redis has just answered, when
// strays have had their time.
func (cl *cleaner) add(call lua.Call, g holdCounts, lease time.Duration, left residue) {
	if left.none() {
		return
	}
	now := time.Now()
	u := &cleanup{call: call, counts: g, strays: left.stray, expires: now.Add(lease)}
	if left.stray {
		u.expires = u.expires.Add(cl.c.opts.CommandTimeout)
	}
	pause := time.Duration(0)
	if !left.there {
		u.calm, pause = now, cl.c.opts.CommandTimeout
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.closed {
		return
	}
	cl.pending[u] = struct{}{}
	cl.schedule.Set(&u.entry, u, pause)
}

func (cl *cleaner) len() int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return len(cl.pending)
}

// run tries once and decides what comes next.
func (cl *cleaner) run(u *cleanup) {
	sure, err := cl.free(u)
	if cl.next(u, sure, err) { // without the mutex: the log's handler may be code of its own, and slow
		cl.c.opts.Logger.Warn("reqlock: a lock could not be freed in time, its lease has ended it", "lock", cl.c.logged(u.counts.key), "owner", u.counts.field, "error", err)
	}
}

// next decides what comes after a try. It reports whether the cleanup was given up.
func (cl *cleaner) next(u *cleanup, sure bool, err error) (givenUp bool) {
	now := time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	done, pause := u.settle(now, cl.c.opts.CommandTimeout, sure, err)
	switch {
	case done:
		delete(cl.pending, u)
	case err != nil && now.After(u.expires):
		delete(cl.pending, u)
		return true
	default:
		cl.schedule.Set(&u.entry, u, pause)
	}
	return false
}

// settle takes the outcome of a try, and returns whether it was the last, or else when to try again.
func (u *cleanup) settle(now time.Time, timeout time.Duration, sure bool, err error) (done bool, pause time.Duration) {
	if !sure {
		u.strays, u.calm = true, time.Time{}
	}
	if err != nil && err != ErrWrongKind {
		u.failures++
		return false, min(20*time.Millisecond<<min(u.failures, 6), time.Second)
	}
	if !u.strays {
		return true, 0
	}
	if u.calm.IsZero() {
		u.calm = now
	}
	pause = timeout - now.Sub(u.calm)
	return pause <= 0, pause
}

// errApart: the lock is free, and something beside its hash may be left.
var errApart = errors.New("the slot of the lock is on its way to another node")

// free sends the release. sure is false when a try of it had no answer.
func (cl *cleaner) free(u *cleanup) (sure bool, err error) {
	c := cl.c
	x := c.ops.Op(u.call, c.opts.CommandTimeout)
	freed, rest, _, err := c.sendRelease(x)
	if freed {
		cl.freed(u.counts.key)
	}
	if err == nil && rest {
		err = errApart
	}
	return !x.Stray(), err
}

// close ends the schedule and runs what is pending once more: each until it succeeds, or ctx is over, and no try begins after
// CommandTimeout. What is left then ends with its lease. The client's background goroutines have ended.
func (cl *cleaner) close(ctx context.Context) {
	cl.schedule.Close()
	cl.mu.Lock()
	cl.closed = true
	pending := make(chan *cleanup, len(cl.pending))
	for u := range cl.pending {
		pending <- u
	}
	clear(cl.pending)
	cl.mu.Unlock()
	close(pending)

	deadline := time.Now().Add(cl.c.opts.CommandTimeout)
	var workers sync.WaitGroup
	for range min(len(pending), 32) {
		workers.Go(func() {
			for u := range pending {
				cl.freeUntil(ctx, deadline, u)
			}
		})
	}
	workers.Wait()
}

// freeUntil frees what is left of a hold for close.
func (cl *cleaner) freeUntil(ctx context.Context, deadline time.Time, u *cleanup) {
	for pause := 5 * time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 100*time.Millisecond) {
		if _, err := cl.free(u); err == nil || err == ErrWrongKind {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
