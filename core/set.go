package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A set is leases that stand for one: those of a MultiLock, which needs them all, or of a RedLock, which needs a majority. It
// has no goroutine and no timer of its own: its members tell it when they end. It is lost when fewer of them are left than
// it needs; then its contexts end, and after that the rest of the members is released.
//
// The mutexes of members are taken inside that of their set. A member tells of its end without holding any.
type set struct {
	quorum int
	shown  bool // errors may hold the name

	mu        sync.Mutex
	lease     *Lease // the whole
	members   []*Lease
	vacancies []*vacancy // places to be filled again; see RedLock
}

// newSet makes one lease of several, for the owner in ctx. A nil member is a place that is empty. The lease may be over
// already: errLate says so, and what is left of the members is still the caller's to release.
func newSet(ctx context.Context, name label, lease time.Duration, members []*Lease, quorum int) (*set, error) {
	s := &set{quorum: quorum, shown: name.shown, members: members}
	l := &Lease{set: s, name: name.name, caller: ctx, fixed: lease, watched: lease == 0}
	s.lease = l
	for _, m := range members {
		if m != nil {
			m.join(s)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.err == nil && s.leftLocked(l) > 0 {
		return s, nil
	}
	l.err = ErrLockLost
	return nil, errLate
}

// join makes a lease a member of a set. The end of one that is over already is not told: its time is, to whoever asks.
func (l *Lease) join(s *set) {
	l.lock()
	defer l.unlock()
	l.listenedLocked().whole = s
}

// remaining is what is left of a lease that may be over.
func (l *Lease) remaining() time.Duration {
	l.lock()
	defer l.unlock()
	if l.err != nil {
		return 0
	}
	return max(0, l.leftLocked())
}

func (s *set) mutex() *sync.Mutex { return &s.mu }

// leftLocked is the deadline that as many members reach as are needed.
func (s *set) leftLocked(*Lease) time.Duration {
	var left []time.Duration
	for _, m := range s.members {
		if m != nil {
			left = append(left, m.remaining())
		}
	}
	if len(left) < s.quorum {
		return 0
	}
	slices.Sort(left)
	return left[len(left)-s.quorum]
}

// memberEnded is told by a member that it has ended.
func (s *set) memberEnded(m *Lease, cause error) {
	if cause == ErrReleased {
		cause = ErrLockLost // not by the set, or it would have ended before
	}
	s.lapse(cause)
	s.vacate(m)
}

func (s *set) expire(*Lease) { s.lapse(ErrLockLost) }

// lapse ends the whole if too few members are left.
func (s *set) lapse(cause error) {
	s.mu.Lock()
	if s.lease.err != nil || s.leftLocked(s.lease) > 0 {
		s.mu.Unlock()
		return
	}
	s.lease.err = cause
	s.dropLocked(s.lease)
	s.mu.Unlock()

	s.lease.endContexts(cause)
	for _, m := range s.members {
		if m != nil {
			m.abandon()
		}
	}
}

// abandon releases a lease in the background.
func (l *Lease) abandon() {
	l.keeper().background(func() { _ = l.Release(context.Background()) })
}

// dropLocked: from now on members and vacancies stay as they are.
func (s *set) dropLocked(*Lease) {
	for _, v := range s.vacancies {
		v.closeLocked()
	}
}

func (s *set) giveBack(ctx context.Context, _ *Lease) error {
	return s.each(func(m *Lease) error { return m.Release(ctx) })
}

func (s *set) extend(ctx context.Context, _ *Lease, d time.Duration) error {
	return s.each(func(m *Lease) error { return m.Extend(ctx, d) })
}

// each calls f for all members at the same time. It returns nil as soon as it has succeeded for as many as are needed,
// while it goes on for the others; and where that is not to be, the errors of all.
func (s *set) each(f func(*Lease) error) error {
	s.mu.Lock()
	members := slices.DeleteFunc(slices.Clone(s.members), func(m *Lease) bool { return m == nil })
	s.mu.Unlock()
	results := start(members, f)
	errs := make([]error, len(members))
	good := 0
	for range members {
		r := <-results
		if errs[r.place] = r.err; r.err == nil {
			good++
		}
		if good == s.quorum {
			return nil
		}
	}
	return errors.Join(errs...)
}

// A result is what became of one member.
type result struct {
	place int
	lease *Lease
	err   error
}

// start calls f for each lease, on goroutines that the clients of the leases wait for. The channel gives as many results.
func start(leases []*Lease, f func(*Lease) error) <-chan result {
	results := make(chan result, len(leases))
	for i, l := range leases {
		l.keeper().background(func() { results <- result{i, l, f(l)} })
	}
	return results
}

// releaseAll releases what did not become a whole. It waits for that, so that whoever comes next finds the locks free, but
// not longer than the caller does.
func releaseAll(ctx context.Context, leases []*Lease) {
	leases = slices.DeleteFunc(slices.Clone(leases), func(l *Lease) bool { return l == nil })
	results := start(leases, func(l *Lease) error { return l.Release(ctx) })
	for range leases {
		select {
		case <-results:
		case <-ctx.Done():
			return
		}
	}
}

func (s *set) stopRenewalLocked(*Lease) {
	for _, m := range s.members {
		if m != nil {
			m.StopRenewal()
		}
	}
}

func (s *set) background(f func()) {
	s.mu.Lock()
	i := slices.IndexFunc(s.members, func(m *Lease) bool { return m != nil })
	k := s.members[i].keeper()
	s.mu.Unlock()
	k.background(f)
}
