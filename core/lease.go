package core

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
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
	hold   *hold // its keeper,
	set    *set  // or else this
	name   string
	caller context.Context // Acquire's
	fixed  time.Duration   // LeaseTime; 0: the watchdog's

	// Guarded by the keeper's mutex.
	err       error
	listeners *listeners
	watched   bool // the watchdog keeps it

	// Only where a hold is the keeper, and guarded as well, but for the first two.
	kind     *kind
	acquired clock.Moment
	tight    bool          // it ends earlier than others do; see RedLock
	alarmed  bool          // the alarm may be set
	deadline clock.Instant // where the watchdog does not keep it
	alarm    schedule.Entry[alarm]
	next     *Lease // of the hold
}

// listeners are told of the end of a lease. They are made on demand.
type listeners struct {
	ctx    context.Context // Lease.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	bound  []*boundContext // those that somebody has asked for their end
	whole  *set            // of which the lease is a member
}

// A keeper is what stands behind a lease: a hold in Redis, which is at the bottom of everything, or a set of other leases.
type keeper interface {
	mutex() *sync.Mutex
	// leftLocked is the time until the lease ends if nothing prolongs it.
	leftLocked(l *Lease) time.Duration
	// expire ends the lease if its time is over.
	expire(l *Lease)
	// dropLocked takes off a lease that is being released; giveBack follows.
	dropLocked(l *Lease)
	// giveBack tells Redis of the release.
	giveBack(ctx context.Context, l *Lease) error
	extend(ctx context.Context, l *Lease, d time.Duration) error
	// stopRenewalLocked has the watchdog keep the lease no longer.
	stopRenewalLocked(l *Lease)
	// background runs f on a goroutine that Client.Close waits for; where that is over, on the caller's.
	background(f func())
}

func (h *hold) lease(r *request, acquired clock.Moment) Lease {
	return Lease{
		hold:     h,
		name:     r.name,
		caller:   r.ctx,
		fixed:    r.fixed,
		watched:  r.fixed == 0,
		kind:     r.kind,
		acquired: acquired,
	}
}

func (l *Lease) keeper() keeper {
	if l.hold != nil {
		return l.hold
	}
	return l.set
}

func (l *Lease) owner() owner {
	if l.hold != nil {
		return l.hold.owner
	}
	return ownerFrom(l.caller)
}

// duration is the lease as Redis is told.
func (l *Lease) duration() time.Duration { return l.hold.client().leaseTime(l.fixed) }

func (c *Client) leaseTime(d time.Duration) time.Duration {
	if d == 0 {
		d = c.opts.WatchdogTimeout
	}
	return d.Truncate(time.Millisecond)
}

func (l *Lease) lock()   { l.keeper().mutex().Lock() }
func (l *Lease) unlock() { l.keeper().mutex().Unlock() }

// Name is the name of the lock, as it was given to the client; of a MultiLock or a RedLock it is what their Name says.
func (l *Lease) Name() string { return l.name }

// Context is Acquire's context with the lease's owner. It ends when that one does, when the lease is lost (cause ErrLockLost),
// when it is released (ErrReleased), and when the client is closed in the meantime (ErrClosed). Where it is asked for only
// after that, it has ended, with the same cause.
func (l *Lease) Context() context.Context {
	l.lock()
	ctx, err := l.contextLocked(), l.err
	l.unlock()
	if ctx != nil {
		return ctx
	}
	parent := l.caller
	if err != nil {
		parent = context.WithoutCancel(parent) // which may have ended since then, and is not the cause
	}
	// This is done without the mutex: the caller's context may be code of its own. Nobody knows the new one before it is adopted.
	ctx, cancel := context.WithCancelCause(withOwner(parent, l.owner()))
	return l.adopt(ctx, cancel)
}

// contextLocked is the lease's context, or nil if nobody has asked for it.
func (l *Lease) contextLocked() context.Context {
	if l.listeners == nil {
		return nil
	}
	return l.listeners.ctx
}

// adopt makes a new context the lease's, unless it has one by now, and returns the lease's.
func (l *Lease) adopt(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
	l.lock()
	a, err := l.listenedLocked(), l.err
	late := a.ctx != nil
	if !late {
		a.ctx, a.cancel = ctx, cancel
	}
	ctx = a.ctx
	l.unlock()
	if late || err != nil {
		cancel(err)
	}
	return ctx
}

// listenedLocked returns the lease's listeners, and makes them on demand.
func (l *Lease) listenedLocked() *listeners {
	if l.listeners == nil {
		l.listeners = new(listeners)
	}
	return l.listeners
}

// Bind returns ctx with the lease's owner, so that it re-enters the lock, ending when the lease is lost (cause ErrLockLost,
// or ErrClosed). It does not end on release. Call the function when done with it.
func (l *Lease) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	c := &boundContext{Context: ctx, lease: l, owner: l.owner()}
	return c, c.free
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
	a := l.listenedLocked()
	if a.done == nil {
		a.done = make(chan struct{})
	}
	return a.done
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
	err, over := l.err, l.leftLocked() <= 0
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
	return max(0, l.leftLocked())
}

// leftLocked is the time to the deadline.
func (l *Lease) leftLocked() time.Duration { return l.keeper().leftLocked(l) }

// expire ends the lease if its time is over.
func (l *Lease) expire() { l.keeper().expire(l) }

// ring is expire, when that is said to be so. As a rule it is not: the lease has been prolonged since its alarm was set.
func (l *Lease) ring() {
	l.lock()
	at := l.hold.client().clock()
	over := l.err == nil && l.leftAtLocked(at) <= 0
	if l.err == nil && !over {
		l.setAlarmLocked(at)
	}
	l.unlock()
	if over {
		l.hold.client().background.Go(l.expire)
	}
}

// Release gives the lock back: one level of it, if it was entered again. It returns nil when Redis has confirmed it;
// ErrLockLost when the lock had been lost; ErrReleased when it was released before; another error when Redis could not be
// told. While Redis is not reached, or only a server that is no master, Release tries again until CommandTimeout is over. After
// that the last level is released in the background, for as long as the lease would have lasted; what Redis counts of the levels
// before it is put right by the next change. The lease is over in any case. That ctx has ended does not stop a Release; it is
// bounded by CommandTimeout, and by as much again where another call is just changing the lock for the same owner. Redisson: unlock.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, nil) }

// release is Release, with a record or without.
func (l *Lease) release(ctx context.Context, r *lua.Record) error {
	l.lock()
	if l.err == nil && l.leftLocked() <= 0 {
		l.unlock()
		l.expire()
		l.lock()
	}
	if err := l.err; err != nil {
		l.unlock()
		return opErr("release", l.label(), err)
	}
	l.err = ErrReleased
	l.keeper().dropLocked(l)
	if r != nil {
		l.hold.record = r
	}
	heard := l.listeners != nil // whoever asks from now on is told at once
	l.unlock()

	if heard {
		l.endContexts(ErrReleased)
	}
	return l.keeper().giveBack(ctx, l)
}

// Extend has the lease last for d from now, unless it lasts longer already. A lease that the watchdog keeps needs no
// extension: ErrInvalidOptions, as for a d below 1ms. ErrLockLost, ErrReleased: it was too late. While Redis is not reached, Extend
// tries again as Release does, unless ctx ends. Redisson: expire.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < minLease {
		return opErr("extend", l.label(), invalid(ErrInvalidOptions, "cannot extend by %s; use at least %s", d, minLease))
	}
	if err := l.Err(); err != nil {
		return opErr("extend", l.label(), err)
	}
	l.lock()
	watched := l.watched
	l.unlock()
	if watched {
		return opErr("extend", l.label(), invalid(ErrInvalidOptions, "the watchdog keeps this lease; acquire with a LeaseTime to extend it by hand"))
	}
	return l.keeper().extend(ctx, l, d.Truncate(time.Millisecond))
}

// StopRenewal has the watchdog keep the lease no longer: it ends when what it has left is over, unless it is released
// or extended before. On a lease that the watchdog does not keep it does nothing.
func (l *Lease) StopRenewal() {
	l.lock()
	defer l.unlock()
	if l.err == nil && l.watched {
		l.keeper().stopRenewalLocked(l)
		l.watched = false
	}
}

// endContexts tells everybody that the lease has ended. It is called once, by whoever set err.
func (l *Lease) endContexts(cause error) {
	l.lock()
	if l.listeners == nil {
		l.unlock()
		return
	}
	a := *l.listeners // from now on nothing is added but a context, which is adopted as one that has ended
	l.listeners.bound = nil
	l.unlock()
	if a.cancel != nil {
		a.cancel(cause)
	}
	if a.done != nil {
		close(a.done)
	}
	if cause != ErrReleased {
		for _, b := range a.bound {
			b.cancel(cause)
		}
	}
	if a.whole != nil {
		a.whole.memberEnded(l, cause)
	}
}

// reportLoss tells log and observer.
func (l *Lease) reportLoss(cause error) {
	c := l.hold.client()
	c.opts.Logger.Warn("reqlock: lock lost while it was held", "lock", c.logged(l.name), "owner", l.hold.field, "cause", cause)
	if f := c.opts.Observer.Lost; f != nil {
		f(l.caller, l.event(cause))
	}
}

func (l *Lease) event(err error) Event {
	return Event{
		Name:  l.name,
		Kind:  l.kind.name,
		Owner: l.hold.field,
		Held:  clock.Now().Since(l.acquired),
		Lease: l.fixed,
		Err:   err,
	}
}

// disown gives back a lease that its caller has not heard of, because it had left.
func (l *Lease) disown() {
	l.keeper().background(func() {
		l.lock()
		if l.err != nil {
			l.unlock()
			return
		}
		l.err = ErrReleased
		l.keeper().dropLocked(l)
		l.unlock()
		l.endContexts(ErrReleased)
		_ = l.hold.release(l) // what fails is cleaned up
	})
}
