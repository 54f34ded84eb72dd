package wasm

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// A queue limits the calls that run, and those that wait for it.
type queue struct {
	slots   chan struct{} // a token for each running call
	longest int64         // calls that may wait
	queued  atomic.Int64
	closing <-chan struct{}
}

func newQueue(running, waiting int, closing <-chan struct{}) *queue {
	return &queue{slots: make(chan struct{}, running), longest: int64(waiting), closing: closing}
}

// enter waits for a slot, and returns for how long. The caller must call leave.
func (q *queue) enter(ctx context.Context) (waited time.Duration, err error) {
	select {
	case q.slots <- struct{}{}:
		return 0, nil
	default:
		began := time.Now()
		err = q.wait(ctx)
		return time.Since(began), err
	}
}

func (q *queue) wait(ctx context.Context) error {
	defer q.queued.Add(-1)
	if q.queued.Add(1) > q.longest {
		return fmt.Errorf("%w: %d requests are waiting for one", ErrBusy, q.longest)
	}
	select {
	case q.slots <- struct{}{}:
		return nil
	case <-q.closing:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
}

func (q *queue) leave() { <-q.slots }

func (q *queue) running() int { return len(q.slots) }
func (q *queue) waiting() int { return int(q.queued.Load()) }
