package core

import (
	"errors"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/schedule"
)

// The cleaner frees in the background what may have been left in Redis: holds whose release did not get through, whose
// acquire was granted when nobody wanted it any more, or for whom a stray try may yet arrive. Since the field of a hold is
// never used again, freeing it once more does no harm.
//
// A cleanup is pending from add until Redis has answered at or after its final time, or its lease is over.
type cleaner struct {
	c        *Client
	schedule *schedule.Schedule[*cleanup]

	mu      sync.Mutex
	pending map[*cleanup]struct{}
	closed  bool
}

type cleanup struct {
	call     lua.Call
	grip     grip
	final    time.Time // an answer before this does not yet count as the last
	expires  time.Time // when Redis has dropped the hold by itself
	failures int
	entry    schedule.Entry[*cleanup]
}

func newCleaner(c *Client) *cleaner {
	cl := &cleaner{c: c, pending: make(map[*cleanup]struct{})}
	cl.schedule = schedule.New(time.Millisecond, func(due []*cleanup) {
		for _, u := range due {
			c.background.Go(func() { cl.run(u) })
		}
	})
	return cl
}

// add has a hold freed by a call: soon, or else only when strays have had their time; and after that time in any case if a try of its
// acquire is in doubt.
func (cl *cleaner) add(call lua.Call, g grip, lease time.Duration, soon, doubt bool) {
	now := time.Now()
	u := &cleanup{call: call, grip: g, final: now, expires: now.Add(lease)}
	if doubt {
		u.final = now.Add(cl.c.opts.CommandTimeout)
		u.expires = u.expires.Add(cl.c.opts.CommandTimeout)
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.closed {
		return
	}
	cl.pending[u] = struct{}{}
	if soon {
		cl.schedule.Set(&u.entry, u, 0)
	} else {
		cl.schedule.Set(&u.entry, u, time.Until(u.final))
	}
}

func (cl *cleaner) len() int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return len(cl.pending)
}

// run tries once and decides what comes next. When Redis was not to be reached it will have things to catch up on, in any
// order, and an answer soon after that is not yet the last.
func (cl *cleaner) run(u *cleanup) {
	sure, err := cl.free(u)
	if cl.next(u, sure, err) { // without the mutex: the log's handler may be code of its own, and slow
		cl.c.opts.Logger.Warn("reqlock: a lock could not be freed in time, its lease has ended it", "lock", cl.c.logged(u.grip.key), "owner", u.grip.field, "error", err)
	}
}

// next decides what comes after a try. It reports whether the cleanup was given up.
func (cl *cleaner) next(u *cleanup, sure bool, err error) (givenUp bool) {
	now := time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if !sure {
		u.final = now.Add(cl.c.opts.CommandTimeout)
	}
	switch {
	case (err == nil || err == ErrWrongKind) && now.Before(u.final):
		cl.schedule.Set(&u.entry, u, u.final.Sub(now))
	case err == nil || err == ErrWrongKind:
		delete(cl.pending, u)
	case now.After(u.expires):
		delete(cl.pending, u)
		return true
	default:
		u.failures++
		cl.schedule.Set(&u.entry, u, min(20*time.Millisecond<<min(u.failures, 6), time.Second))
	}
	return false
}

// errApart: the lock is free, and something beside its hash may be left.
var errApart = errors.New("the slot of the lock is on its way to another node")

// free sends the release. sure is false when a try of it had no answer.
func (cl *cleaner) free(u *cleanup) (sure bool, err error) {
	c := cl.c
	x := c.exchange(u.call, c.opts.CommandTimeout)
	freed, rest, err := x.release()
	if freed {
		c.wake(u.grip.key)
	}
	if err == nil && rest {
		err = errApart
	}
	return !x.doubt, err
}

// close ends the schedule and runs what is pending once more, without beginning any after CommandTimeout. The client's
// background goroutines have ended.
func (cl *cleaner) close() {
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
				for time.Now().Before(deadline) { // if it fails, the lease ends it
					if _, err := cl.free(u); err != errApart {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	workers.Wait()
}
