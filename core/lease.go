package core

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/internal/lineage"
)

// A Lease is an acquired lock, until it is released or lost. Its methods are safe for concurrent
// use.
//
// A lease with a LeaseTime expires after it, counted from before the command that acquired the lock
// was sent, less a small margin. A lease without one expires if the watchdog cannot renew it for
// WatchdogTimeout. A lease also ends when Redis turns out not to have it any more. In all these
// cases the lock is lost: Context, Bind and Done report it at once.
//
// The lease of a MultiLock or a RedLock stands for the leases of its members, which only it can
// use.
type Lease struct {
	backend backend
	name    string
	caller  context.Context // the caller's context of Acquire
	fixed   time.Duration   // LeaseTime; 0: the watchdog renews it

	// Guarded by the backend's mutex.
	err      error
	watchers *watchers
}

// A backend is what a Lease delegates to: a level of a hold, or a set of other leases.
type backend interface {
	mutex() *sync.Mutex
	// leftLocked returns the time until the lease ends unless it is prolonged.
	leftLocked() time.Duration
	// expire ends the lease if its deadline has passed.
	expire()
	// detachLocked begins a release; giveBack follows.
	detachLocked(e ending)
	// giveBack sends the release to Redis.
	giveBack(ctx context.Context) error
	extend(ctx context.Context, d time.Duration) error
	// renewedLocked reports whether the watchdog renews the lease.
	renewedLocked() bool
	stopRenewalLocked()
	// background runs f on a goroutine that Client.Close waits for. If Close has already waited for
	// them, it runs f on the caller's goroutine.
	background(f func())

	// invites returns the leases whose holds may have guests.
	invites() ([]*level, error)

	token() uint64 // 0: none
	shown() bool   // errors may include the name
}

// watchers are notified when a lease ends. They are made on demand.
type watchers struct {
	ctx    context.Context // Lease.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	bound  []*boundContext             // contexts of Bind whose Done or Err was called
	set    func(l *Lease, cause error) // tells the set that the lease is a member of
}

func (l *Lease) mu() *sync.Mutex { return l.backend.mutex() }

func (l *Lease) label() label { return label{l.name, l.backend.shown()} }

// Name returns the name of the lock as it was given to the client. For a MultiLock or a RedLock it
// returns the name of that.
func (l *Lease) Name() string { return l.name }

// LogName returns what logs and errors of the client call the lock: its name with Options.LogNames,
// otherwise a hash of the name.
func (l *Lease) LogName() string { return l.label().String() }

// Context returns a child of Acquire's context with which code re-enters the lock, and no other:
// goroutines that share it exclude each other on other names. It ends when Acquire's context ends,
// when the lease is lost (cause ErrLockLost), when it is released (ErrReleased), and when the
// client is closed before that (ErrClosed). Called after the lease has ended, it returns a context
// that has ended with the same cause.
func (l *Lease) Context() context.Context {
	l.mu().Lock()
	ctx, err := l.contextLocked(), l.err
	l.mu().Unlock()
	if ctx != nil {
		return ctx
	}
	parent := l.caller
	if err != nil {
		parent = context.WithoutCancel(parent) // it may have ended since, but the cause is err
	}
	// The mutex is not held here, because the caller's context may run the caller's code.
	link := &linkContext{Context: parent}
	link.link.Continue(lineage.From(parent))
	link.link.Lease = l
	ctx, cancel := context.WithCancelCause(link)
	return l.setContext(ctx, cancel)
}

// contextLocked returns the lease's context, or nil if it has not been made.
func (l *Lease) contextLocked() context.Context {
	if l.watchers == nil {
		return nil
	}
	return l.watchers.ctx
}

// setContext makes ctx the lease's context unless the lease has one by now. It returns the lease's
// context.
func (l *Lease) setContext(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
	l.mu().Lock()
	a, err := l.watchersLocked(), l.err
	late := a.ctx != nil
	if !late {
		a.ctx, a.cancel = ctx, cancel
	}
	ctx = a.ctx
	l.mu().Unlock()
	if late || err != nil {
		cancel(err)
	}
	return ctx
}

// watchersLocked returns the lease's watchers. It makes them on demand.
func (l *Lease) watchersLocked() *watchers {
	if l.watchers == nil {
		l.watchers = new(watchers)
	}
	return l.watchers
}

// Bind returns a child of ctx with which code re-enters the lock, as with Context. It ends when
// ctx ends, or when the lease is lost (cause ErrLockLost or ErrClosed). It does not end on release.
// Call the function when done with the context.
func (l *Lease) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	c := l.bound(ctx)
	return c, c.Unbind
}

func (l *Lease) bound(ctx context.Context) *boundContext {
	c := &boundContext{Context: ctx, lease: l}
	c.link.Continue(lineage.From(ctx))
	c.link.Lease = l
	return c
}

// Token returns the fencing token of a lease of a FencedLock, or of another lock with Fenced. It is
// greater than the token of every earlier hold of the lock, in any process. Re-entries share the
// token of their hold. ok is false for all other locks. Redisson: lockAndGetToken.
func (l *Lease) Token() (token uint64, ok bool) {
	token = l.backend.token()
	return token, token > 0
}

// Done returns a channel that is closed when the lease is released or lost.
func (l *Lease) Done() <-chan struct{} {
	l.mu().Lock()
	defer l.mu().Unlock()
	if l.err != nil {
		return closedChannel
	}
	a := l.watchersLocked()
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

// Err returns nil while the lease is held, then an error that matches ErrLockLost, ErrReleased or
// ErrClosed. It compares the clock with the deadline, so it is right even after the process or the
// machine was suspended.
func (l *Lease) Err() error {
	l.mu().Lock()
	err, over := l.err, l.backend.leftLocked() <= 0
	l.mu().Unlock()
	if err == nil && over {
		l.backend.expire()
		l.mu().Lock()
		err = l.err
		l.mu().Unlock()
	}
	return err
}

// Remaining returns how long the lease lasts if nothing prolongs it, by this process's clocks and
// less a margin: the lease ends here before it expires in Redis. It returns 0 if the lease has
// ended.
func (l *Lease) Remaining() time.Duration {
	if l.Err() != nil {
		return 0
	}
	l.mu().Lock()
	defer l.mu().Unlock()
	return max(0, l.backend.leftLocked())
}

// Release releases the lock. If the owner has entered the lock several times, it releases one
// level. It returns nil when Redis has confirmed the release, ErrLockLost if the lock was lost
// before, ErrReleased if the lease was released before, and another error if Redis could not
// confirm. The lease has ended in any case.
//
// Release retries until CommandTimeout while Redis cannot be reached, or only as a replica. After
// that, the release of the last level is retried in the background for as long as the lease would
// have lasted. The count of the levels before it is corrected by the next change. If the reply to a
// try is lost, and a retry finds that the hold is gone, Release returns nil: Redis cannot tell
// whether that try released it or the hold was lost meanwhile.
//
// Release does not stop when ctx ends. It takes up to CommandTimeout, and as long again for each
// call for the same owner that is changing the lock before it. Redisson: unlock.
func (l *Lease) Release(ctx context.Context) error { return l.release(ctx, ending{}) }

// release is Release, with what a Once leaves.
func (l *Lease) release(ctx context.Context, e ending) error {
	l.mu().Lock()
	if l.err == nil && l.backend.leftLocked() <= 0 {
		l.mu().Unlock()
		l.backend.expire()
		l.mu().Lock()
	}
	if err := l.err; err != nil {
		l.mu().Unlock()
		return opErr("release", l.label(), err)
	}
	l.err = ErrReleased
	l.backend.detachLocked(e)
	heard := l.watchers != nil // a watcher added later sees the error at once
	l.mu().Unlock()

	if heard {
		l.endContexts(ErrReleased)
	}
	return l.backend.giveBack(ctx)
}

// Extend makes the lease last for d from now, unless it already lasts longer. It fails with
// ErrInvalidOptions if d is below 1ms, or if the watchdog renews the lease: that needs no
// extension. It fails with ErrLockLost or ErrReleased if the lease has ended. While Redis cannot be
// reached, Extend retries as Release does, unless ctx ends. Redisson: expire.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	if d < minLease {
		err := invalid(ErrInvalidOptions, "cannot extend by %s; use at least %s", d, minLease)
		return opErr("extend", l.label(), err)
	}
	if err := l.Err(); err != nil {
		return opErr("extend", l.label(), err)
	}
	l.mu().Lock()
	watched := l.backend.renewedLocked()
	l.mu().Unlock()
	if watched {
		return opErr("extend", l.label(), invalid(ErrInvalidOptions,
			"the watchdog renews this lease; acquire with a LeaseTime to use Extend"))
	}
	return l.backend.extend(ctx, d.Truncate(time.Millisecond))
}

// StopRenewal stops the renewal of the lease by the watchdog. The lease then expires when its
// remaining time is over, unless it is released or extended before that. StopRenewal has no effect
// on a lease that the watchdog does not renew.
func (l *Lease) StopRenewal() {
	l.mu().Lock()
	defer l.mu().Unlock()
	if l.err == nil && l.backend.renewedLocked() {
		l.backend.stopRenewalLocked()
	}
}

// endContexts ends the contexts and channels of the lease. The function that set err calls it,
// once.
func (l *Lease) endContexts(cause error) {
	l.mu().Lock()
	if l.watchers == nil {
		l.mu().Unlock()
		return
	}
	// After this, only a context can be added, and setContext ends that itself.
	a := *l.watchers
	l.watchers.bound = nil
	l.mu().Unlock()
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

// releaseLater releases a lease in the background.
func (l *Lease) releaseLater() {
	l.backend.background(func() { _ = l.Release(context.Background()) })
}

// remaining is Remaining without ending a lease whose deadline has passed.
func (l *Lease) remaining() time.Duration {
	l.mu().Lock()
	defer l.mu().Unlock()
	if l.err != nil {
		return 0
	}
	return max(0, l.backend.leftLocked())
}

// lossLocked returns why the lease was lost; nil: it was not.
func (l *Lease) lossLocked() error {
	if l.err == ErrReleased {
		return nil
	}
	return l.err
}
