package coalesce

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A flight is the callers of one key in this process. One of them leads: it asks Redis, and runs or
// waits for another process. The others wait in memory. If the leader leaves without an outcome, one
// of those who wait leads in its place.
type flight struct {
	key flightKey

	// waiting is how many callers wait, and led whether another one leads. flights.mu guards both.
	waiting int
	led     bool
	// lead holds the lead from the moment a leader cedes it until a caller that waits takes it.
	lead chan struct{}

	// landed is closed when there is an outcome.
	landed  chan struct{}
	outcome *outcome
}

// A flightKey says which callers share a flight. Those that wait for ever outlast an outage of Redis,
// which the others learn of, so they have a flight of their own.
type flightKey struct {
	locks   *core.Client
	key     string
	forever bool
}

// flights are those that callers are in.
var flights = struct {
	mu    sync.Mutex
	byKey map[flightKey]*flight
}{byKey: make(map[flightKey]*flight)}

// A lead is the right of one caller to ask Redis for its flight. It ends once: with an outcome, or
// because another caller may lead.
type lead struct {
	of *flight
	// ended is guarded by flights.mu. It is true from the start if the caller shares no flight.
	ended bool
}

// join returns the flight of a key. leads is nil if another caller leads it.
func join(key flightKey) (f *flight, leads *lead) {
	flights.mu.Lock()
	defer flights.mu.Unlock()
	f = flights.byKey[key]
	if f != nil {
		f.waiting++
		return f, nil
	}
	f = &flight{key: key, led: true, lead: make(chan struct{}, 1), landed: make(chan struct{})}
	flights.byKey[key] = f
	return f, &lead{of: f}
}

// await waits for the outcome, or for the lead. Without either it returns why it waits no longer.
func (f *flight) await(ctx context.Context, waitTime time.Duration) (leads *lead, err error) {
	var over <-chan time.Time
	if waitTime != core.WaitForever {
		alarm := time.NewTimer(waitTime)
		defer alarm.Stop()
		over = alarm.C
	}
	select {
	case <-f.landed:
		return nil, nil
	case <-f.lead:
		return f.take(), nil
	case <-ctx.Done():
		f.leave()
		return nil, fmt.Errorf("%w: %w", core.ErrStillHeld, ended(ctx))
	case <-over:
		f.leave()
		return nil, &core.NotAcquiredError{Name: f.key.key, Waited: waitTime}
	}
}

// take makes a caller that waits the leader. It has received the lead.
func (f *flight) take() *lead {
	flights.mu.Lock()
	defer flights.mu.Unlock()
	f.waiting--
	f.led = true
	return &lead{of: f}
}

// leave removes a caller that waits.
func (f *flight) leave() {
	flights.mu.Lock()
	defer flights.mu.Unlock()
	f.waiting--
	f.forgetLocked()
}

// forgetLocked ends a flight that nobody leads or waits for.
func (f *flight) forgetLocked() {
	if !f.led && f.waiting == 0 && flights.byKey[f.key] == f {
		delete(flights.byKey, f.key)
	}
}

// land gives all who wait the outcome. Callers that come later have a new flight. A lead that has
// ended does nothing.
func (l *lead) land(o *outcome) {
	flights.mu.Lock()
	defer flights.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	delete(flights.byKey, l.of.key)
	l.of.outcome = o
	close(l.of.landed)
}

// cede lets one of those who wait lead, if the lead has not ended.
func (l *lead) cede() {
	flights.mu.Lock()
	defer flights.mu.Unlock()
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
