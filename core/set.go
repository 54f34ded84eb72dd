package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// A set is leases that stand for one: those of a MultiLock, which needs them all, or of a RedLock, which needs a majority. It
// has no goroutine and no timer of its own: its members tell it when they end. It is lost when fewer of them are left than
// it needs; then its contexts end, and after that the rest of the members is released.
//
// The mutexes of members are taken inside that of their set. A member tells of its end without holding any.
type set struct {
	Lease     // the whole
	quorum    int
	nameShown bool // errors may hold the name
	unrenewed bool // LeaseTime was given, or StopRenewal called
	mu        sync.Mutex
	members   []*Lease
	vacancies []*vacancy // places to be filled again; see RedLock
}

// newSet makes one lease of several, for the owner in ctx. A nil member is a place that is empty. The lease may be over already:
// errLate says so, and what is left of the members is still the caller's to release.
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
	return nil, errLate
}

// adopt has the set hear of a member's end. It does not hear of the end of one that is over already: its time is, as the set sees
// when it looks.
func (s *set) adopt(m *Lease) {
	m.lock()
	defer m.unlock()
	m.listenedLocked().set = s.memberEnded
}

func (s *set) mutex() *sync.Mutex { return &s.mu }
func (s *set) holder() owner      { return ownerFrom(s.caller) }
func (s *set) token() uint64      { return 0 }
func (s *set) shown() bool        { return s.nameShown }

// leftLocked is the deadline that as many members reach as are needed.
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

// memberEnded hears from a member that it has ended.
func (s *set) memberEnded(m *Lease, cause error) {
	if cause == ErrReleased {
		cause = ErrLockLost // not by the set, or it would have ended before
	}
	s.lapse(cause)
	s.vacate(m)
}

func (s *set) expire() { s.lapse(ErrLockLost) }

// lapse ends the whole if too few members are left.
func (s *set) lapse(cause error) {
	s.mu.Lock()
	if s.err != nil || s.leftLocked() > 0 {
		s.mu.Unlock()
		return
	}
	s.err = cause
	s.detachLocked(nil)
	s.mu.Unlock()

	s.endContexts(cause)
	for _, m := range s.members {
		if m != nil {
			m.abandon()
		}
	}
}

// detachLocked: from now on members and vacancies stay as they are.
func (s *set) detachLocked(*lua.Record) {
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
		l.backend.background(func() { results <- result{i, l, f(l)} })
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

func (s *set) renewedLocked() bool { return !s.unrenewed }

func (s *set) stopRenewalLocked() {
	s.unrenewed = true
	for _, m := range s.members {
		if m != nil {
			m.StopRenewal()
		}
	}
}

func (s *set) background(f func()) {
	s.mu.Lock()
	i := slices.IndexFunc(s.members, func(m *Lease) bool { return m != nil })
	member := s.members[i]
	s.mu.Unlock()
	member.backend.background(f)
}

// vacate has the place of a member that was lost filled again, if the whole still stands.
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

// wantsMembersLocked reports whether lost members are acquired again.
func (s *set) wantsMembersLocked() bool { return s.err == nil && s.renewedLocked() }
