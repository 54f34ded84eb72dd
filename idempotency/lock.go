package idempotency

import (
	"context"
	"errors"

	"github.com/reqlock/reqlock/core"
)

// A lock is the lock of one attempt, for package guard.
type lock struct {
	a    *attempt
	once core.Once
}

func (l *lock) Name() string { return lockName(l.a.name) }

// Unwrap returns the lock itself, for those who ask who holds it.
func (l *lock) Unwrap() core.Locker { return l.a.g.locks.Lock(l.Name()) }

// Acquire fails with the reply if a record exists: a replay, or a *guard.Error.
func (l *lock) Acquire(ctx context.Context, opts core.AcquireOptions) (*core.Lease, error) {
	lease, data, err := l.once.Acquire(ctx, opts)
	switch {
	case errors.Is(err, core.ErrBound):
		return nil, newError(keyReused, "", nil)
	case errors.Is(err, core.ErrUnrecorded):
		return nil, newError(runFailed, "", nil)
	case errors.Is(err, core.ErrQuota):
		return nil, newError(keyQuota, "", nil)
	case err != nil:
		return nil, err
	}
	if lease == nil {
		return nil, l.a.reply(data)
	}
	l.a.lease = lease
	l.a.move(attemptLocked)
	return lease.Lease, nil
}
