package core

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
)

// A set is several leases as one: those of a MultiLock, which needs them all, or those of a
// RedLock, which needs a majority. It has no goroutine and no timer. Its members call it when they
// end. It is lost when too few of them are left. Then its contexts end first, and the other members
// are released after that.
//
// Lock order: the mutex of a set, then those of its members. A member calls its set without holding
// any.
type set struct {
	Lease     // the lease of the whole set
	quorum    int
	nameShown bool // errors may include the name
	unrenewed bool // LeaseTime was given, or StopRenewal called
	mu        sync.Mutex
	members   []*Lease
	vacancies []*vacancy // one for each member; see RedLock
}

// newSet makes one lease of several, for the caller with ctx. A nil member is missing. If the lease
// has expired by now, newSet returns claim.ErrLate, and the caller must release the members.
func newSet(ctx context.Context, name label, lease time.Duration, members []*Lease, quorum int) (*set, error) {
	s := &set{quorum: quorum, nameShown: name.shown, unrenewed: lease > 0, members: members}
	s.Lease = Lease{backend: s, name: name.name, caller: ctx, fixed: lease}
	for _, m := range members {
		if m != nil {
			s.adopt(m)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.leftLocked() > 0 {
		return s, nil
	}
	s.err = ErrLockLost
	return nil, claim.ErrLate
}

// adopt makes m call the set when it ends. A lease that has ended before makes no call, but the set
// notices when it looks at its deadline.
func (s *set) adopt(m *Lease) {
	m.mu().Lock()
	defer m.mu().Unlock()
	m.watchersLocked().set = s.memberEnded
}

func (s *set) mutex() *sync.Mutex { return &s.mu }
func (s *set) token() uint64      { return 0 }
func (s *set) shown() bool        { return s.nameShown }

// holdIn asks the members.
func (s *set) holdIn(eng *engine, key string) *hold {
	if s.Err() != nil {
		return nil
	}
	for _, m := range s.present() {
		if h := holdIn(m, eng, key); h != nil {
			return h
		}
	}
	return nil
}

// leftLocked returns the time for which a quorum of members lasts.
func (s *set) leftLocked() time.Duration {
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

// memberEnded handles the end of a member.
func (s *set) memberEnded(m *Lease, cause error) {
	if cause == ErrReleased {
		cause = ErrLockLost // released by another: a release of the set would have set s.err
	}
	s.checkQuorum(cause)
	s.vacate(m)
}

func (s *set) expire() { s.checkQuorum(ErrLockLost) }

// checkQuorum ends the set if too few members are left.
func (s *set) checkQuorum(cause error) {
	s.mu.Lock()
	if s.err != nil || s.leftLocked() > 0 {
		s.mu.Unlock()
		return
	}
	s.err = cause
	s.detachLocked(ending{})
	s.mu.Unlock()

	s.endContexts(cause)
	for _, m := range s.members {
		if m != nil {
			m.releaseLater()
		}
	}
}

// detachLocked freezes the members and vacancies.
func (s *set) detachLocked(ending) {
	for _, v := range s.vacancies {
		v.closeLocked()
	}
}

func (s *set) giveBack(ctx context.Context) error {
	return s.each(func(m *Lease) error { return m.Release(ctx) })
}

func (s *set) extend(ctx context.Context, d time.Duration) error {
	return s.each(func(m *Lease) error { return m.Extend(ctx, d) })
}

// present returns the members that are there now. Their mutexes may be held for long.
func (s *set) present() []*Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.members), func(m *Lease) bool { return m == nil })
}

// each calls f for all members at the same time. It returns nil once f has succeeded for a quorum,
// and lets the other calls finish in the background. Without a quorum it returns all errors.
func (s *set) each(f func(*Lease) error) error {
	members := s.present()
	results := start(members, f)
	errs := make([]error, len(members))
	good := 0
	for range members {
		r := <-results
		if errs[r.index] = r.err; r.err == nil {
			good++
		}
		if good == s.quorum {
			return nil
		}
	}
	return joinErrors(errs...)
}

// A result is the result of a call for one member.
type result struct {
	index int
	lease *Lease
	err   error
}

// start calls f for each lease, on goroutines that the leases' clients wait for in Close. The
// channel delivers one result for each.
func start(leases []*Lease, f func(*Lease) error) <-chan result {
	results := make(chan result, len(leases))
	for i, l := range leases {
		l.backend.background(func() { results <- result{i, l, f(l)} })
	}
	return results
}

// releaseAll releases the members of a failed attempt. It waits for the releases, so that the next
// caller finds the locks free, but only until ctx ends.
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

func (s *set) renewedLocked() bool { return !s.unrenewed }

func (s *set) stopRenewalLocked() {
	s.unrenewed = true
	for _, m := range s.members {
		if m != nil {
			m.StopRenewal()
		}
	}
}

// background uses the client of a member. There is one: a set that stands has a quorum, and one
// that has ended keeps its members.
func (s *set) background(f func()) {
	s.mu.Lock()
	i := slices.IndexFunc(s.members, func(m *Lease) bool { return m != nil })
	member := s.members[i]
	s.mu.Unlock()
	member.backend.background(f)
}

// vacate schedules the acquisition of a lost member, if the set still stands.
func (s *set) vacate(m *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.members, m)
	if i < 0 || len(s.vacancies) == 0 || !s.wantsMembersLocked() {
		return
	}
	s.members[i] = nil
	s.vacancies[i].fillLaterLocked()
}

// wantsMembersLocked reports whether to acquire lost members again.
func (s *set) wantsMembersLocked() bool { return s.err == nil && s.renewedLocked() }
