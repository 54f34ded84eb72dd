package core

import (
	"context"
	"slices"

	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Semaphore lets a number of callers in at a time, over all processes: each Acquire takes a permit,
// and waits while all are taken. A lease of a permit is like that of a lock: the watchdog renews it,
// or it has a LeaseTime, and its context ends when it is lost. The permit of a process that dies is
// free after its lease.
//
// A semaphore is not reentrant. A caller that has a permit and acquires another has two, so with one
// permit left in all it waits for itself. One permit is not a lock, which has other keys.
//
// Callers of one process get permits in order of arrival, give or take one place, those of several
// processes share them.
// Like a Lock, a Semaphore has no state. Redisson: RPermitExpirableSemaphore.
type Semaphore struct {
	lock Lock
	kind kinds.Kind // the lock's kind, with terms
}

// Semaphore returns the semaphore of a name. What Lock says about names applies here as well, and in
// a cluster, braces in the name must form a valid hash tag. Use another name than for a lock: both
// have the key of that name in Redis, and the one that comes later gets ErrWrongKind.
//
// permits is how many permits there are. A new version of a program may have another number. It is in
// force from the first Acquire of the client that New made last, by the clock of Redis, until
// SetPermits sets another. So the later deployment wins, and the versions do not fight while both
// run. Clients made within the same second count as one, and of one client the first number is in
// force. If there are fewer permits than before, holders keep theirs, and no caller gets one until
// enough are released. Redis forgets the number half a day to a day after its last use.
//
// permits 0 leaves the number to Redis: SetPermits or a JVM has set it, for ever. Until then Acquire
// waits. Use that to share a semaphore with Redisson, because a JVM cannot acquire what Redis does
// not have. A JVM's clock decides when it takes an expired permit. The watchdog renews a permit when
// two thirds of WatchdogTimeout are left, so the clocks may differ by less than that.
func (c *Client) Semaphore(name string, permits int) *Semaphore {
	s := &Semaphore{lock: c.newLock(nil, name), kind: kinds.Semaphore}
	s.lock.kind = &s.kind
	s.kind.Declares = permits
	switch {
	case s.lock.err != nil:
	case c.slot(s.lock.key) != c.slot(wire.PermitsTaken(s.lock.key)):
		s.lock.err = invalid(ErrInvalidName, "its braces are not a valid hash tag, so in a cluster its permits would be "+
			"in another slot; put the whole name in braces, or leave them out")
	case permits < 0:
		s.lock.err = invalid(ErrInvalidOptions, "a semaphore cannot have %d permits; use 1 or more, or 0 for what Redis has", permits)
	}
	return s
}

// Name returns the name that was given to the client.
func (s *Semaphore) Name() string { return s.lock.name }

// Acquire takes a permit. If all are taken for longer than WaitTime, it returns a *NotAcquiredError.
// It fails as Lock.Acquire does. Redisson: acquire, tryAcquire.
func (s *Semaphore) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	return s.lock.Acquire(ctx, opts)
}

// AcquireN takes n permits or none, with one lease. While it waits for enough of them, callers of this
// process that come later wait behind it, but those of other processes may take single ones. An n
// below 1 or above the number of permits is ErrInvalidOptions, also when SetPermits lowers the number
// while it waits. With 0 permits it waits for more. Redisson: acquire(permits).
func (s *Semaphore) AcquireN(ctx context.Context, n int, opts AcquireOptions) (*Lease, error) {
	some := *s
	some.lock.kind, some.kind.Takes = &some.kind, n
	if s.lock.err == nil && (n < 1 || s.kind.Declares > 0 && n > s.kind.Declares) {
		some.lock.err = invalid(ErrInvalidOptions, "a caller cannot take %d permits of %d; take at least 1, and no more than there are", n, s.kind.Declares)
	}
	return some.lock.Acquire(ctx, opts)
}

// Available returns how many permits are free. Redisson: availablePermits.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	permits, taken, err := s.count(ctx)
	return max(0, permits-taken), err
}

// Permits returns how many permits there are, free and taken. If none was taken yet, that is the
// number given to Semaphore. Redisson: getPermits.
func (s *Semaphore) Permits(ctx context.Context) (int, error) {
	permits, _, err := s.count(ctx)
	return permits, err
}

func (s *Semaphore) count(ctx context.Context) (permits, taken int, err error) {
	reply, err := s.lock.run(ctx, lua.CountPermits(s.lock.c.engine.settings().Permits(s.lock.key)))
	if err == nil {
		permits, taken, err = lua.ReadPermits(reply)
	}
	if err != nil {
		return 0, 0, opErr("inspect", s.lock.label(), err)
	}
	if permits < 0 {
		permits = s.kind.Declares
	}
	return permits, taken, nil
}

// SetPermits sets how many permits there are, for all clients, until it is called again or a client
// that is newer acquires a permit with another number. From then on, Redis keeps the number for ever.
// Holders keep their permits if there are fewer. An n below 0 is ErrInvalidOptions; with 0, no
// caller gets a permit. Redisson: setPermits.
func (s *Semaphore) SetPermits(ctx context.Context, n int) error {
	err := s.lock.err
	if err == nil && n < 0 {
		err = invalid(ErrInvalidOptions, "a semaphore cannot have %d permits; use 0 or more", n)
	}
	if err == nil {
		_, err = s.lock.run(ctx, lua.SetPermits(s.lock.c.engine.settings().Permits(s.lock.key), n))
	}
	if err != nil {
		return opErr("set the permits of", s.lock.label(), err)
	}
	s.lock.c.names.wake(s.lock.key)
	return nil
}

// ForceUnlock takes the permits of one owner, as Client.Holds and package inspect name it, and
// reports whether it had any. Its lease and those of its guests end as Lock.ForceUnlock says; a guest
// itself has none. The error of an uncertain outcome is that of Client.ForceUnlockOwners. Redisson:
// release of a permit ID.
func (s *Semaphore) ForceUnlock(ctx context.Context, owner string) (bool, error) {
	forced, err := s.lock.forceOwners(ctx, []string{owner})
	return slices.Contains(forced.Owners, owner), err
}
