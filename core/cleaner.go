package core

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/schedule"
)

// The cleaner frees in the background what may be left in Redis: holds whose release failed, holds
// granted to a caller that has left, and holds that a stray may still create or renew. The field of
// a hold is never used again, so freeing it twice does no harm.
// claim.Cleanup decides when one is done.
type cleaner struct {
	eng      *engine
	freed    func(key string) // wakes the waiters for a lock that was freed
	schedule *schedule.Schedule[*cleanup]

	mu      sync.Mutex
	pending map[*cleanup]struct{} // nil: closed
}

type cleanup struct {
	call   lua.Call
	counts kinds.Hold
	claim  claim.Cleanup
	entry  schedule.Entry
}

func newCleaner(eng *engine, freed func(key string)) *cleaner {
	cl := &cleaner{eng: eng, freed: freed, pending: make(map[*cleanup]struct{})}
	cl.schedule = schedule.New(time.Millisecond, func(due []*cleanup) {
		for _, together := range joined(due) {
			eng.background.Go(func() { cl.run(together) })
		}
	})
	return cl
}

// joined groups cleanups so that each group is one call: those of waiters that leave the queue of a
// fair lock together. One that has failed is repeated alone.
func joined(all []*cleanup) (groups [][]*cleanup) {
	latest := make(map[string]int) // the group of each key
	for _, u := range all {
		i, known := latest[u.counts.Key]
		if known && u.claim.Failures() == 0 && len(groups[i]) < lua.MostJoined && u.call.Joins(groups[i][0].call) {
			groups[i] = append(groups[i], u)
			continue
		}
		groups = append(groups, []*cleanup{u})
		if u.claim.Failures() == 0 {
			latest[u.counts.Key] = len(groups) - 1
		}
	}
	return groups
}

// gathering is how long a cleanup waits for others that leave together with it.
const gathering = 2 * time.Millisecond

// add schedules a call that frees what may be left of a wire owner. It runs at once if something
// may be there now. If only strays may be coming, Redis has just answered, and the call runs after
// CommandTimeout.
func (cl *cleaner) add(call lua.Call, g kinds.Hold, lease time.Duration, left claim.Leftovers) {
	if left.None() {
		return
	}
	u := &cleanup{call: call, counts: g}
	var pause time.Duration
	u.claim, pause = claim.NewCleanup(left, time.Now(), lease, cl.eng.opts.CommandTimeout)
	if pause == 0 && call.Joins(call) {
		pause = gathering
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.pending == nil {
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

// run makes one attempt at cleanups that are one call, and schedules the next of each.
func (cl *cleaner) run(together []*cleanup) {
	sure, err := cl.free(together)
	for _, u := range together {
		if cl.next(u, sure, err) { // logs without the mutex, because the log handler may be slow
			cl.eng.logFault("reqlock: a lock could not be freed before its lease expired", u.counts.Key, u.counts.Wire, 1, err)
		}
	}
}

// next decides what follows an attempt. It reports whether the cleanup was given up.
func (cl *cleaner) next(u *cleanup, sure bool, err error) (givenUp bool) {
	now := time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	v := u.claim.After(now, cl.eng.opts.CommandTimeout, cleanupReply(sure, err))
	if v.Done || v.GivenUp {
		delete(cl.pending, u)
	} else {
		cl.schedule.Set(&u.entry, u, v.Pause)
	}
	return v.GivenUp
}

// cleanupReply returns what an attempt tells. A key of another type has nothing of the hold.
func cleanupReply(sure bool, err error) claim.CleanupReply {
	return claim.CleanupReply{
		Sure:   sure,
		Failed: err != nil,
		Heard:  redisop.IsAnswer(err) || err == errSlotMoving,
		Ended:  err == ErrWrongKind,
	}
}

// errSlotMoving means that the lock is free, but keys beside its hash may be left.
var errSlotMoving = errors.New("the lock's slot is migrating to another node")

// free sends the release of cleanups that are one call. sure is false if one of its tries had no
// reply.
func (cl *cleaner) free(together []*cleanup) (sure bool, err error) {
	eng, call := cl.eng, together[0].call
	if len(together) > 1 {
		calls := make([]lua.Call, len(together))
		for i, u := range together {
			calls[i] = u.call
		}
		call = lua.Join(calls)
	}
	x := eng.ops.Op(call, eng.opts.CommandTimeout)
	if len(together) > 1 {
		x.Hasty() // in a slot that migrates, each is sent again alone
	}
	freed, leftovers, _, err := eng.sendRelease(x)
	if freed {
		cl.freed(together[0].counts.Key)
	}
	if err == nil && leftovers {
		err = errSlotMoving
	}
	return !x.TryUnanswered(), err
}

// close stops the schedule and runs each pending cleanup until it succeeds, ctx ends, or
// CommandTimeout has passed. The rest expires with its lease. The client's background
// goroutines must have ended.
func (cl *cleaner) close(ctx context.Context) {
	cl.schedule.Close()
	cl.mu.Lock()
	groups := joined(slices.Collect(maps.Keys(cl.pending)))
	cl.pending = nil
	cl.mu.Unlock()
	pending := make(chan []*cleanup, len(groups))
	for _, together := range groups {
		pending <- together
	}
	close(pending)

	deadline := time.Now().Add(cl.eng.opts.CommandTimeout)
	var workers sync.WaitGroup
	for range min(len(pending), 32) {
		workers.Go(func() {
			for together := range pending {
				cl.freeUntil(ctx, deadline, together)
			}
		})
	}
	workers.Wait()
}

// freeUntil repeats cleanups that are one call until it succeeds, ctx ends, or the deadline has
// passed. After a failure each is repeated alone.
func (cl *cleaner) freeUntil(ctx context.Context, deadline time.Time, together []*cleanup) {
	for pause := 5 * time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 100*time.Millisecond) {
		_, err := cl.free(together)
		switch {
		case err == nil || err == ErrWrongKind:
			return
		case len(together) > 1:
			for _, u := range together {
				cl.freeUntil(ctx, deadline, []*cleanup{u})
			}
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
