package core

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/schedule"
)

// A Lease is a lock that was acquired, until it is released or lost. Its methods may be called from any goroutine.
//
// The lease ends by itself when its LeaseTime is over, counted from before the command that took it was sent, less a small
// margin; or, without a LeaseTime, when the watchdog has not been able to renew it for as long as WatchdogTimeout. It
// also ends when Redis is found not to know it any more. All of that is a loss: Context, Bind and Done tell of it at once.
//
// The lease of a MultiLock or a RedLock stands for those of all its members, which nobody else sees.
type Lease struct {
	keeper keeper
	name   string
	owner  owner
	fixed  time.Duration // LeaseTime; 0: the watchdog's
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      *sync.Mutex // guards what follows: the shard's of the hold, or the set's
	watched bool        // the watchdog keeps it
	err     error
	done    chan struct{} // made when somebody asks while it is held
	bound   []*binding
	whole   *set // of which it is a member

	// Only where a hold is the keeper.
	c        *Client
	hold     *hold
	kind     *kind
	caller   context.Context // Acquire's
	owned    ownerContext
	acquired moment
	deadline instant       // guarded by mu; where the watchdog does not keep it
	drift    time.Duration // guarded by mu; by how much it ends earlier than others do
	alarm    schedule.Entry[alarm]
}

// A keeper is what stands behind a lease: a hold in Redis, which is at the bottom of everything, or a set of other leases.
type keeper interface {
	// left is the time until the lease ends if nothing prolongs it. Locked.
	left(l *Lease) time.Duration
	// expire ends the lease if its time is over.
	expire(l *Lease)
	// drop takes off a lease that is being released; giveBack follows. Locked.
	drop(l *Lease)
	// giveBack tells Redis of the release.
	giveBack(ctx context.Context, l *Lease) error
	extend(ctx context.Context, l *Lease, d time.Duration) error
	// stopRenewal has the watchdog keep the lease no longer. Locked.
	stopRenewal(l *Lease)
	// background runs f on a goroutine that Client.Close waits for; where that is over, on the caller's.
	background(f func())
}

// A binding is a context that ends when the lease is lost.
type binding struct{ cancel context.CancelCauseFunc }

func (h *hold) newLease(r *request) *Lease {
	l := &Lease{
		keeper:   h,
		name:     r.name,
		owner:    h.owner,
		fixed:    r.fixed,
		mu:       &h.entry.shard.mu,
		watched:  r.fixed == 0,
		c:        h.client(),
		hold:     h,
		kind:     r.kind,
		caller:   r.ctx,
		acquired: now(),
	}
	l.owned = ownerContext{r.ctx, h.owner}
	l.ctx, l.cancel = context.WithCancelCause(&l.owned)
	return l
}

// duration is the lease as Redis is told.
func (l *Lease) duration() time.Duration { return l.c.leaseTime(l.fixed) }

func (c *Client) leaseTime(d time.Duration) time.Duration {
	if d == 0 {
		d = c.opts.WatchdogTimeout
	}
	return d.Truncate(time.Millisecond)
}

func (l *Lease) lock()   { l.mu.Lock() }
func (l *Lease) unlock() { l.mu.Unlock() }

// Name is the name of the lock, as it was given to the client; of a MultiLock or a RedLock it is what their Name says.
func (l *Lease) Name() string { return l.name }

// Context is Acquire's context with the lease's owner. It ends when that one does, when the lease is lost (cause ErrLockLost),
// when it is released (ErrReleased), and when the client is closed in the meantime (ErrClosed).
func (l *Lease) Context() context.Context { return l.ctx }

// Bind returns ctx with the lease's owner, so that it re-enters the lock, ending when the lease is lost (cause ErrLockLost,
// or ErrClosed). It does not end on release. Call the function when done with it.
func (l *Lease) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(withOwner(ctx, l.owner))
	b := &binding{cancel}
	l.lock()
	switch {
	case l.err == nil:
		l.bound = append(l.bound, b)
	case l.err != ErrReleased:
		defer cancel(l.err)
	}
	l.unlock()
	return ctx, func() {
		l.lock()
		if i := slices.Index(l.bound, b); i >= 0 {
			l.bound = slices.Delete(l.bound, i, i+1)
		}
		l.unlock()
		cancel(context.Canceled)
	}
}

// Token is the fencing token of a lease of a FencedLock: greater than that of every hold of the lock before it, in any process.
// Re-entries share their hold's. ok is false for other locks, and for several. Redisson: lockAndGetToken.
func (l *Lease) Token() (token uint64, ok bool) {
	if l.hold == nil {
		return 0, false
	}
	return l.hold.token, l.hold.token > 0
}

// Done is closed when the lease is released or lost.
func (l *Lease) Done() <-chan struct{} {
	l.lock()
	defer l.unlock()
	if l.err != nil {
		return closedChannel
	}
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Err is nil while the lease is held, and then ErrLockLost, ErrReleased or ErrClosed. It looks at the clock, and is right
// also when the process, or the machine, has been stopped for a while.
func (l *Lease) Err() error {
	l.lock()
	err, over := l.err, l.left() <= 0
	l.unlock()
	if err == nil && over {
		l.expire()
		l.lock()
		err = l.err
		l.unlock()
	}
	return err
}

// Remaining is how long the lease is good for if nothing prolongs it: by this process's clocks, less a margin, so that it is
// over here before it is over in Redis. 0 when it is over.
func (l *Lease) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}
	l.lock()
	defer l.unlock()
	return max(0, l.left())
}

// left is the time to the deadline. Locked.
func (l *Lease) left() time.Duration { return l.keeper.left(l) }

// expire ends the lease if its time is over.
func (l *Lease) expire() { l.keeper.expire(l) }

// ring is expire, when that is said to be so.
func (l *Lease) ring() { l.c.background.Go(l.expire) }

// Release gives the lock back: one level of it, if it was entered again. It returns nil when Redis has confirmed it;
// ErrLockLost when the lock had been lost; ErrReleased when it was released before; another error when Redis could not be
// told. Then the last level is released in the background, for as long as the lease would have lasted; what Redis counts of
// the levels before it is put right by the next change. The lease is over in any case. That ctx has ended does not stop it;
// it is bounded by CommandTimeout. Redisson: unlock.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, nil) }

// release is Release, with a record or without.
func (l *Lease) release(ctx context.Context, r *lua.Record) error {
	if err := l.Err(); err != nil {
		return opErr("release", l.name, err)
	}
	l.lock()
	if err := l.err; err != nil {
		l.unlock()
		return opErr("release", l.name, err)
	}
	l.err = ErrReleased
	l.keeper.drop(l)
	if r != nil {
		l.hold.record = r
	}
	l.unlock()

	l.endContexts(ErrReleased)
	return l.keeper.giveBack(ctx, l)
}

// Extend has the lease last for d from now, unless it lasts longer already. A lease that the watchdog keeps needs no
// extension: ErrInvalidOptions, as for a d below 1ms. ErrLockLost, ErrReleased: it was too late. Redisson: expire.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < minLease {
		return opErr("extend", l.name, invalid(ErrInvalidOptions, "cannot extend by %s; use at least %s", d, minLease))
	}
	l.lock()
	watched := l.watched
	l.unlock()
	if watched {
		return opErr("extend", l.name, invalid(ErrInvalidOptions, "the watchdog keeps this lease; acquire with a LeaseTime to extend it by hand"))
	}
	if err := l.Err(); err != nil {
		return opErr("extend", l.name, err)
	}
	return l.keeper.extend(ctx, l, d.Truncate(time.Millisecond))
}

// StopRenewal has the watchdog keep the lease no longer: it ends when what it has left is over, unless it is released
// or extended before. On a lease that the watchdog does not keep it does nothing.
func (l *Lease) StopRenewal() {
	l.lock()
	defer l.unlock()
	if l.err == nil && l.watched {
		l.keeper.stopRenewal(l)
		l.watched = false
	}
}

// endContexts tells everybody that the lease has ended. It is called once, by whoever set err.
func (l *Lease) endContexts(cause error) {
	l.lock()
	done, bound, whole := l.done, l.bound, l.whole
	l.bound = nil
	l.unlock()
	l.cancel(cause)
	if done != nil {
		close(done)
	}
	if cause != ErrReleased {
		for _, b := range bound {
			b.cancel(cause)
		}
	}
	if whole != nil {
		whole.memberEnded(l, cause)
	}
}

// reportLoss tells log and observer.
func (l *Lease) reportLoss(cause error) {
	l.c.opts.Logger.Warn("reqlock: lock lost while it was held", "lock", l.c.logged(l.name), "owner", l.hold.field, "cause", cause)
	if f := l.c.opts.Observer.Lost; f != nil {
		f(l.caller, l.event(cause))
	}
}

func (l *Lease) event(err error) Event {
	return Event{
		Name:  l.name,
		Kind:  l.kind.name,
		Owner: l.hold.field,
		Held:  now().since(l.acquired),
		Lease: l.fixed,
		Err:   err,
	}
}
