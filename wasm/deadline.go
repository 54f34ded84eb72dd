package wasm

import (
	"context"
	"sync"
	"time"
)

// A deadline is the context of an instance's calls, one after another. It ends when a call takes
// too long, which also ends the instance. So an unexpired deadline can be reused for the next call.
//
// It is not derived from the request's context, because a client must not be able to end an
// instance. It is no standard timeout context, because a new timer for each call costs more than
// many guests.
type deadline struct {
	owner *instance
	timer *time.Timer // stopped, except between begin and end
	once  sync.Once
	done  chan struct{}
}

func newDeadline(owner *instance) *deadline {
	return &deadline{owner: owner, done: make(chan struct{})}
}

func (d *deadline) begin(timeout time.Duration) {
	if d.timer == nil {
		d.timer = time.AfterFunc(timeout, d.expire)
		return
	}
	d.timer.Reset(timeout)
}

// end stops the timer and reports whether the call was in time.
func (d *deadline) end() bool {
	if !d.timer.Stop() {
		d.expire() // the timer's function may still run: it must not end a later call
	}
	return d.Err() == nil
}

func (d *deadline) expire() { d.once.Do(func() { close(d.done) }) }

// Deadline, Done, Err and Value make it a context.Context.
func (d *deadline) Deadline() (time.Time, bool) { return time.Time{}, false }
func (d *deadline) Done() <-chan struct{}       { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

type instanceKey struct{}

func (d *deadline) Value(key any) any {
	if key == (instanceKey{}) {
		return d.owner
	}
	return nil
}
