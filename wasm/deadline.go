package wasm

import (
	"context"
	"sync"
	"time"
)

// A deadline is the context of an instance's calls, one after another. It ends when one of them takes too long, and the instance
// with it; that is why it can be used again and again: a deadline that is over is never begun again.
//
// It is a context of its own because what a client does must not end an instance, and because one with a timer for each call
// costs more than many guests do.
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

// end reports whether the call was over in time.
func (d *deadline) end() bool {
	if !d.timer.Stop() {
		d.expire() // the timer's function may be yet to run: it must not end another call
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
