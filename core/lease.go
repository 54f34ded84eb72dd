package core

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// A Lease is a lock that was acquired, until it is released or lost. Its methods may be called from any goroutine.
//
// The lease ends by itself when its LeaseTime is over, counted from before the command that took it was sent, less a small
// margin; or, without a LeaseTime, when the watchdog has not been able to renew it for as long as WatchdogTimeout. It
// also ends when Redis is found not to know it any more. All of that is a loss: Context, Bind and Done tell of it at once.
//
// The lease of a MultiLock or a RedLock stands for those of all its members, which nobody else sees.
type Lease struct {
	backend backend
	name    string
	caller  context.Context // Acquire's
	fixed   time.Duration   // LeaseTime; 0: the watchdog's

	// Guarded by the backend's mutex.
	err       error
	listeners *listeners
}

// A backend is what a Lease stands for: a level of a hold, or a set of other leases.
type backend interface {
	mutex() *sync.Mutex
	// leftLocked is the time until the lease ends unless it is prolonged.
	leftLocked() time.Duration
	// expire ends the lease if its time is over.
	expire()
	// detachLocked begins a release; giveBack follows. r is the record to be left; nil: none.
	detachLocked(r *lua.Record)
	// giveBack tells Redis of the release.
	giveBack(ctx context.Context) error
	extend(ctx context.Context, d time.Duration) error
	// renewedLocked reports whether the watchdog keeps the lease.
	renewedLocked() bool
	stopRenewalLocked()
	// background runs f on a goroutine that Client.Close waits for; where that is over, on the caller's.
	background(f func())

	holder() owner
	token() uint64 // 0: none
	shown() bool   // errors may hold the name
}

// listeners hear of the end of a lease. They are made on demand.
type listeners struct {
	ctx    context.Context // Lease.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	bound  []*boundContext             // those that were asked for their end
	set    func(l *Lease, cause error) // that the lease is a member of
}

func (l *Lease) lock()   { l.backend.mutex().Lock() }
func (l *Lease) unlock() { l.backend.mutex().Unlock() }

func (l *Lease) label() label { return label{l.name, l.backend.shown()} }

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
	ctx, cancel := context.WithCancelCause(withOwner(parent, l.backend.holder()))
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
	c := &boundContext{Context: ctx, lease: l, id: identity{owner: l.backend.holder()}}
	return c, c.free
}

// Token is the fencing token of a lease of a FencedLock: greater than that of every hold of the lock before it, in any process.
// Re-entries share their hold's. ok is false for other locks, and for several. Redisson: lockAndGetToken.
func (l *Lease) Token() (token uint64, ok bool) {
	token = l.backend.token()
	return token, token > 0
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
	err, over := l.err, l.backend.leftLocked() <= 0
	l.unlock()
	if err == nil && over {
		l.backend.expire()
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
	return max(0, l.backend.leftLocked())
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
	if l.err == nil && l.backend.leftLocked() <= 0 {
		l.unlock()
		l.backend.expire()
		l.lock()
	}
	if err := l.err; err != nil {
		l.unlock()
		return opErr("release", l.label(), err)
	}
	l.err = ErrReleased
	l.backend.detachLocked(r)
	heard := l.listeners != nil // who asks from now on has the answer at once
	l.unlock()

	if heard {
		l.endContexts(ErrReleased)
	}
	return l.backend.giveBack(ctx)
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
	watched := l.backend.renewedLocked()
	l.unlock()
	if watched {
		return opErr("extend", l.label(), invalid(ErrInvalidOptions, "the watchdog keeps this lease; acquire with a LeaseTime to extend it by hand"))
	}
	return l.backend.extend(ctx, d.Truncate(time.Millisecond))
}

// StopRenewal has the watchdog keep the lease no longer: it ends when what it has left is over, unless it is released
// or extended before. On a lease that the watchdog does not keep it does nothing.
func (l *Lease) StopRenewal() {
	l.lock()
	defer l.unlock()
	if l.err == nil && l.backend.renewedLocked() {
		l.backend.stopRenewalLocked()
	}
}

// endContexts ends all that listens to the lease. It is called once, by the function that set err.
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
	if a.set != nil {
		a.set(l, cause)
	}
}

// abandon releases a lease in the background.
func (l *Lease) abandon() {
	l.backend.background(func() { _ = l.Release(context.Background()) })
}

// remaining is Remaining of a lease that may be over, without a look at whether it is.
func (l *Lease) remaining() time.Duration {
	l.lock()
	defer l.unlock()
	if l.err != nil {
		return 0
	}
	return max(0, l.backend.leftLocked())
}

// lossLocked is why the lease was lost; nil: it was not.
func (l *Lease) lossLocked() error {
	if l.err == ErrReleased {
		return nil
	}
	return l.err
}
