package coalesce

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A group is the callers of one key in this process. One of them leads: it asks Redis, and runs or
// waits for another process. The others wait in memory. If the leader leaves without an outcome, one
// of those who wait leads in its place.
type group struct {
	key groupKey

	// waiting is how many callers wait, and led whether another one leads. groups.mu guards both.
	waiting int
	led     bool
	// lead holds the lead from the moment a leader cedes it until a caller that waits takes it.
	lead chan struct{}

	// landed is closed when there is an outcome.
	landed  chan struct{}
	outcome *outcome
}

// A groupKey says which callers share a group. Those that wait for ever outlast an outage of Redis,
// which the others learn of, so they have a group of their own. So have the requests of each Guard.
type groupKey struct {
	locks   *core.Client
	key     string
	forever bool
	guard   *Guard // nil: Do
}

// groups are those that callers are in.
var groups = struct {
	mu    sync.Mutex
	byKey map[groupKey]*group
}{byKey: make(map[groupKey]*group)}

// A lead is the right of one caller to ask Redis for its group. It ends once: with an outcome, or
// because another caller may lead.
type lead struct {
	of *group
	// ended is guarded by groups.mu. It is true from the start if the caller shares no group.
	ended bool
}

// join returns the group of a key. leads is nil if another caller leads it. At most so many wait; -1:
// any number.
func join(key groupKey, most int) (g *group, leads *lead, err error) {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	g = groups.byKey[key]
	if g != nil {
		if most >= 0 && g.waiting >= most {
			return nil, nil, core.ErrTooManyWaiters
		}
		g.waiting++
		return g, nil, nil
	}
	g = &group{key: key, led: true, lead: make(chan struct{}, 1), landed: make(chan struct{})}
	groups.byKey[key] = g
	return g, &lead{of: g}, nil
}

// await waits for the outcome, or for the lead. Without either it returns why it waits no longer.
func (g *group) await(ctx context.Context, waitTime time.Duration) (leads *lead, err error) {
	var over <-chan time.Time
	if waitTime != core.WaitForever {
		alarm := time.NewTimer(waitTime)
		defer alarm.Stop()
		over = alarm.C
	}
	select {
	case <-g.landed:
		return nil, nil
	case <-g.lead:
		return g.take(), nil
	case <-ctx.Done():
		if g.leave() {
			return nil, nil
		}
		return nil, fmt.Errorf("%w: %w", core.ErrStillHeld, ended(ctx))
	case <-over:
		if g.leave() {
			return nil, nil
		}
		return nil, &core.NotAcquiredError{Name: g.key.key, Waited: waitTime}
	}
}

// take makes a caller that waits the leader. It has received the lead.
func (g *group) take() *lead {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	g.waiting--
	g.led = true
	return &lead{of: g}
}

// leave removes a caller that waits, unless the group has landed.
func (g *group) leave() (landed bool) {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	if g.outcome != nil {
		return true
	}
	g.waiting--
	g.forgetLocked()
	return false
}

// forgetLocked ends a group that no one leads or waits for.
func (g *group) forgetLocked() {
	if !g.led && g.waiting == 0 && groups.byKey[g.key] == g {
		delete(groups.byKey, g.key)
	}
}

// land gives all who wait the outcome. Callers that come later have a new group. After the end of the
// lead, only its caller uses the outcome.
func (l *lead) land(o *outcome) {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	o.users.Store(1)
	if l.ended {
		return
	}
	l.ended = true
	o.users.Add(int32(l.of.waiting))
	if groups.byKey[l.of.key] == l.of {
		delete(groups.byKey, l.of.key)
	}
	l.of.outcome = o
	close(l.of.landed)
}

// renewed lets callers that come later share nothing that was asked for before: it may be the stale
// answer, which a client that has the new one must not get.
func renewed(key groupKey) {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	delete(groups.byKey, key)
}

// cede lets one of those who wait lead, if the lead has not ended.
func (l *lead) cede() {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	l.of.led = false
	if l.of.waiting > 0 {
		l.of.lead <- struct{}{} // Only a leader sends, so there is room.
	}
	l.of.forgetLocked()
}

// ended returns the error of a context that has ended, with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
