package core

import (
	"fmt"
	"sync/atomic"
)

// A waitingRoom is where the callers of a client wait, whatever they wait for. It bounds their number.
type waitingRoom struct {
	size    int64
	inside  atomic.Int64
	errFull error
}

func newWaitingRoom(size int) *waitingRoom {
	return &waitingRoom{
		size: int64(size),
		errFull: fmt.Errorf("%w: %d callers of this client wait already, as core.Options.MaxWaiting allows",
			ErrTooManyWaiters, size),
	}
}

// enter admits a caller, unless the room is full. A caller that was admitted leaves later.
func (r *waitingRoom) enter() error {
	if r.inside.Add(1) > r.size {
		r.inside.Add(-1)
		return r.errFull
	}
	return nil
}

func (r *waitingRoom) leave() { r.inside.Add(-1) }

// errNameFull returns the error of one waiter too many for a name.
func errNameFull(limit int32) error {
	return fmt.Errorf("%w: %d callers of this process wait for the name already, as core.AcquireOptions.MaxWaiters allows",
		ErrTooManyWaiters, limit)
}
