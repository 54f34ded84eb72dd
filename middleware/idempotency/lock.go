package idempotency

import (
	"context"
	"crypto/subtle"
	"net/http"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// A lock is the lock of a run as a guard takes it. What has a record cannot be locked: the error is the answer to that.
type lock struct {
	v    *visit
	name string
	once *core.Once
	err  error // why there can be no lock
}

func lockOf(r *http.Request, name string) core.Locker {
	v := visitOf(r)
	l := &lock{v: v, name: name, once: v.g.locks.Once(name)}
	if v.g.cfg.OnUnknown == OutcomeRefuse {
		if v.marker, l.err = v.seal(&record{kind: begun, print: v.print}); l.err == nil {
			l.once = l.once.WithMarker(v.marker, v.g.cfg.TTL)
		}
	}
	return l
}

func (l *lock) Name() string { return l.name }

func (l *lock) Acquire(ctx context.Context, opts core.AcquireOptions) (*core.Lease, error) {
	if l.err != nil {
		l.v.g.cfg.Logger.Error("reqlock: idempotency: a run cannot be marked, its request is answered 503", "error", l.err)
		return nil, newError(recordUnwritable, "", l.err)
	}
	lease, data, err := l.once.Acquire(ctx, opts)
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return nil, l.v.answer(data)
	}
	l.v.lease = lease
	return lease.Lease, nil
}

// answer is what a request with a record gets.
func (v *visit) answer(data []byte) *guard.Error {
	rec, err := v.unseal(data)
	if err != nil {
		v.g.cfg.Logger.Error("reqlock: idempotency: a record cannot be read, its request is answered 503", "error", err)
		return newError(recordUnreadable, "", err)
	}
	if subtle.ConstantTimeCompare(rec.print[:], v.print[:]) != 1 {
		return newError(keyReused, "", nil)
	}
	switch rec.kind {
	case unrecorded:
		return newError(notReplayable, "", nil)
	case begun:
		return newError(outcomeUnknown, "", nil)
	}
	v.replay = rec
	return &guard.Error{Status: rec.status, Title: "The request has been processed", Err: ErrReplayed}
}
