package coalesce

import (
	"context"
	"errors"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/ctxvalue"
	"github.com/reqlock/reqlock/internal/lineage"
)

// enter returns the run of a caller whose turn it is, or what another caller has left. It returns the
// error of the Acquire that has asked Redis for this caller, or why the caller waits no longer.
func enter(ctx context.Context, locks *core.Client, key string, opts Options) (*run, *outcome, error) {
	if reenters(ctx, key) {
		return (&lead{ended: true}).ask(ctx, locks, key, opts, opts.WaitTime)
	}
	return share(ctx, groupKey{locks: locks, key: key, forever: opts.WaitTime == core.WaitForever}, -1, opts)
}

// share is enter for a caller that has not the lock already. At most so many wait in this process; -1:
// any number.
func share(ctx context.Context, key groupKey, most int, opts Options) (*run, *outcome, error) {
	began := time.Now()
	g, l, err := join(key, most)
	if err != nil {
		return nil, nil, err
	}
	if l != nil {
		return l.ask(ctx, key.locks, key.key, opts, opts.WaitTime)
	}
	l, err = g.await(watched(ctx), opts.WaitTime)
	switch {
	case err != nil:
		return nil, nil, err
	case l == nil:
		return nil, g.outcome, g.outcome.err
	case opts.WaitTime == core.WaitForever:
		return l.ask(ctx, key.locks, key.key, opts, core.WaitForever)
	}
	return l.ask(ctx, key.locks, key.key, opts, max(0, opts.WaitTime-time.Since(began)))
}

// ask acquires the lock or the record for a leader.
func (l *lead) ask(ctx context.Context, locks *core.Client, key string, opts Options, waitTime time.Duration) (r *run, o *outcome, err error) {
	// The lead ends here as well if an Observer panics.
	defer func() {
		if r == nil {
			l.cede()
		}
	}()
	lease, record, err := locks.Once(key).Acquire(ctx, core.AcquireOptions{WaitTime: waitTime, LeaseTime: opts.LeaseTime})
	if lease != nil {
		return &run{lead: l, lease: lease, opts: opts}, nil, nil
	}
	o = &outcome{record: record, err: err}
	if err == nil || concernsAll(ctx, err) {
		l.land(o)
	}
	return nil, o, err
}

// concernsAll reports whether an error of Acquire is one for all who wait: it comes neither from the
// end of the caller's context nor from that of its WaitTime.
func concernsAll(ctx context.Context, err error) bool {
	return watched(ctx).Err() == nil && !errors.Is(err, core.ErrNotAcquired) && !errors.Is(err, core.ErrStillHeld)
}

// watched returns the context whose end a caller heeds: ctx, or if ctx never ends, as those of some
// frameworks, the context that it stands for.
func watched(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		if other := ctxvalue.Behind(ctx); other != nil {
			return other
		}
	}
	return ctx
}

// reenters reports whether the caller may hold the lock, as one whose context comes from a run. It
// shares no group, because it would wait for itself.
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
