package guard

import (
	"context"
	"errors"

	"github.com/reqlock/reqlock/core"
)

// ErrMaxHold is the cause of a handler's context that ended because of Config.MaxHold.
var ErrMaxHold = errors.New("reqlock: guard: the request has held its lock for MaxHold")

// LeaseFrom returns the lease that the innermost guard holds for the request of ctx. With several
// keys it stands for all their locks (core.MultiLock). There is none outside a guard, if the guard
// ran the handler without a lock, and after Release and Detach.
func LeaseFrom(ctx context.Context) (*core.Lease, bool) {
	s := sectionOf(ctx)
	if s == nil {
		return nil, false
	}
	lease := s.held()
	return lease, lease != nil
}

// Release releases the lock of the innermost guard before the handler returns, such as before a
// long stream that needs no protection. The handler's context goes on. core.ErrNotHeld: there is no
// lock to release; other errors are those of core.Lease.Release.
func Release(ctx context.Context) error {
	lease, ok := Detach(ctx)
	if !ok {
		return core.ErrNotHeld
	}
	return lease.Release(ctx)
}

// Detach takes the lock over from the innermost guard. The lock then outlives the request, and the
// caller releases it. That is for hijacked connections and for work that goes on in the background;
// use Lease.Bind for a context that ends when the lock is lost, and that re-enters it. The
// handler's context no longer does. It still ends when the handler returns, and MaxHold no longer
// applies. false: there is no lock.
func Detach(ctx context.Context) (*core.Lease, bool) {
	s := sectionOf(ctx)
	if s == nil {
		return nil, false
	}
	lease := s.detach(ctx)
	return lease, lease != nil
}
