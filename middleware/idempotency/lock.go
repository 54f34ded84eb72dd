package idempotency

import (
	"context"
	"crypto/subtle"

	"github.com/reqlock/reqlock/core"
)

// A lock is the lock of one attempt, for package guard.
type lock struct {
	a    *attempt
	once *core.Once
}

// lock returns the lock of a. With OutcomeRefuse, Acquire leaves a marker in the step that takes it.
func (a *attempt) lock() (core.Locker, error) {
	l := &lock{a: a, once: a.g.locks.Once(lockName(a.name))}
	if a.g.cfg.OnUnknown != OutcomeRefuse {
		return l, nil
	}
	var err error
	if a.marker, err = a.seal(&record{kind: begun, print: a.print}); err != nil {
		a.g.cfg.Logger.Error("reqlock: idempotency: a run cannot be marked, its request is answered 503", "error", err)
		return nil, newError(recordUnwritable, "", err)
	}
	l.once = l.once.WithMarker(a.marker, a.g.cfg.TTL)
	return l, nil
}

func (l *lock) Name() string { return lockName(l.a.name) }

// Acquire fails with the reply if a record exists: a replay, or a *guard.Error.
func (l *lock) Acquire(ctx context.Context, opts core.AcquireOptions) (*core.Lease, error) {
	lease, data, err := l.once.Acquire(ctx, opts)
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return nil, l.a.reply(data)
	}
	l.a.lease = lease
	return lease.Lease, nil
}

// reply returns what a repeat is answered with, given the record in Redis.
func (a *attempt) reply(data []byte) error {
	rec, err := a.unseal(data)
	if err != nil {
		a.g.cfg.Logger.Error("reqlock: idempotency: a record cannot be read, its request is answered 503", "error", err)
		return newError(recordUnreadable, "", err)
	}
	if subtle.ConstantTimeCompare(rec.print[:], a.print[:]) != 1 {
		return newError(keyReused, "", nil)
	}
	switch rec.kind {
	case unrecorded:
		return newError(notReplayable, "", nil)
	case begun:
		return newError(outcomeUnknown, "", nil)
	}
	return &replay{rec}
}
