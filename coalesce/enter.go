package coalesce

import (
	"context"
	"errors"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lineage"
)

// enter returns the run of a caller whose turn it is, or the record of another caller. It returns the
// error of the Acquire that has asked Redis for this caller, or why the caller waits no longer.
func enter(ctx context.Context, locks *core.Client, key string, opts Options) (r *run, record []byte, err error) {
	began := time.Now()
	l := &lead{ended: true}
	if !reenters(ctx, key) {
		var f *flight
		if f, l = join(flightKey{locks, key, opts.WaitTime == core.WaitForever}); l == nil {
			if l, err = f.await(ctx, opts.WaitTime); err != nil {
				return nil, nil, err
			}
			if l == nil {
				return nil, f.record, f.err
			}
		}
	}
	// The lead ends here as well if an Observer panics.
	defer func() {
		if r == nil {
			l.cede()
		}
	}()
	acquire := core.AcquireOptions{WaitTime: opts.WaitTime, LeaseTime: opts.LeaseTime}
	if acquire.WaitTime != core.WaitForever {
		acquire.WaitTime = max(0, acquire.WaitTime-time.Since(began))
	}
	lease, record, err := locks.Once(key).Acquire(ctx, acquire)
	switch {
	case lease != nil:
		return &run{lead: l, lease: lease, opts: opts}, nil, nil
	case err == nil || concernsAll(ctx, err):
		l.land(record, err)
	}
	return nil, record, err
}

// concernsAll reports whether an error of Acquire is one for all who wait: it comes neither from the
// end of the caller's context nor from that of its WaitTime.
func concernsAll(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, core.ErrNotAcquired) && !errors.Is(err, core.ErrStillHeld)
}

// reenters reports whether the caller may hold the lock, as one whose context comes from a run. It
// shares no flight, because it would wait for itself.
func reenters(ctx context.Context, key string) bool {
	link := lineage.From(ctx)
	if link != nil && link.Owner != 0 {
		return true
	}
	for ; link != nil; link = link.Outer {
		if lease, ok := link.Lease.(*core.Lease); ok && lease.Name() == key {
			return true
		}
	}
	return false
}
