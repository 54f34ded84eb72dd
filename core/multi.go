package core

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/backoff"
	"github.com/reqlock/reqlock/core/internal/claim"
)

// MultiLock returns several locks as one: Acquire takes all of them or none. They may be of
// different kinds, clients and servers. A lock that is named twice is entered twice, and of a
// semaphore that is named twice, two permits are taken. Redisson: getMultiLock.
//
// All processes take the locks in the order of their names, whatever the order here, so that two
// MultiLocks cannot deadlock. The write lock of a name comes before its read lock. The first
// attempt tries all locks at once, without waiting. If one is refused and WaitTime is set, the next
// attempts take one lock after another. A caller that holds some of the locks waits for the next
// one for up to 1.5s times the number of locks. Then it releases what it has, pauses for a random
// time and starts over.
//
// Locks of one name on several servers are taken in the order of the servers' addresses, as
// configured in the Redis clients, if these have one. Processes may use different addresses for a
// server and so disagree on the order. Each may then hold what the other waits for. So a caller
// that holds one of these locks waits for the next for a short random time only: up to 20 ms at
// first, and up to 320 ms after more attempts. One of the callers soon gives way.
//
// If a lock of one name is named twice, by different clients, Acquire asks their servers for the run
// ID (INFO server) once, and returns ErrInvalidOptions if it is the same: the two would wait for each
// other.
//
// The lease stands for all members. It ends when the first of them ends. If one is lost, the others
// are released. Each member gets LeaseTime. Release releases every member and joins the errors.
// Acquire fails with the error of the member that it did not get, such as a *NotAcquiredError with
// its name. Observers and Stats see the members only.
func MultiLock(locks ...Locker) Locker {
	m := &multi{err: checkMembers("core.MultiLock", locks)}
	if m.err == nil {
		m.err = checkOverlaps(locks)
	}
	if m.err != nil {
		return m
	}
	for _, l := range locks {
		switch l := l.(type) {
		case *multi:
			m.locks = append(m.locks, l.locks...)
			m.err = cmp.Or(m.err, l.err)
		case *Semaphore:
			m.locks = append(m.locks, &l.lock)
		default:
			m.locks = append(m.locks, l)
		}
	}
	slices.SortStableFunc(m.locks, func(a, b Locker) int {
		return cmp.Or(
			cmp.Compare(keyOf(a), keyOf(b)),
			cmp.Compare(addressOf(a), addressOf(b)),
			cmp.Compare(rank(a), rank(b)),
		)
	})
	m.whole = joinLabels("multi", m.locks)
	return m
}

type multi struct {
	locks []Locker // in the order of acquisition
	whole label    // names all locks together
	err   error    // why it can never work
}

// keyOf returns what all processes call a lock: its key, to which the client may have mapped its
// name.
func keyOf(l Locker) string {
	if l, ok := l.(*Lock); ok {
		return l.key
	}
	return l.Name()
}

// addressOf returns the address of a lock's server as its Redis client has it; "": unknown.
func addressOf(l Locker) string {
	if c := clientOf(l); c != nil {
		return c.address
	}
	return ""
}

// rank orders the locks of one name. A reader cannot take the write lock, so that comes first.
func rank(l Locker) int {
	if l, ok := l.(*Lock); ok {
		return l.kind.Rank
	}
	return 0
}

// checkMembers refuses locks that can never be acquired together.
func checkMembers(what string, locks []Locker) error {
	if len(locks) == 0 {
		return invalid(ErrInvalidOptions, "%s has no locks; give it at least one", what)
	}
	for i, l := range locks {
		missing, err := l == nil, error(nil)
		switch l := l.(type) {
		case *Lock:
			if missing = l == nil; !missing {
				err = l.err
			}
		case *Semaphore:
			if missing = l == nil; !missing {
				err = l.lock.err
			}
		case *multi:
			err = l.err
		case *red:
			err = l.err
		}
		switch {
		case missing:
			return invalid(ErrInvalidOptions, "lock %d of the %d of %s is nil", i+1, len(locks), what)
		case err != nil:
			return &memberError{i + 1, what, err}
		}
	}
	return nil
}

// checkOverlaps refuses a lock that is part of a RedLock and of another member too. Each attempt at
// a RedLock has a new owner, so the two would exclude each other, unless both are read locks.
func checkOverlaps(locks []Locker) error {
	if !slices.ContainsFunc(locks, hasRed) {
		return nil
	}
	for i, l := range locks {
		for j, other := range locks[:i] {
			shared := overlap(other, l, func(a, b part) bool {
				return (a.ofRed || b.ofRed) && !(a.lock.kind.Shared && b.lock.kind.Shared)
			})
			if shared != nil {
				return invalid(ErrInvalidOptions, "locks %d and %d of core.MultiLock both contain the lock %s, "+
					"one of them as part of a core.RedLock, which cannot share it; use it in one of them", j+1, i+1, shared.label())
			}
		}
	}
	return nil
}

func hasRed(l Locker) bool {
	switch l := l.(type) {
	case *multi:
		return slices.ContainsFunc(l.locks, hasRed)
	case *red:
		return true
	}
	return false
}

// A part is a lock that a Locker consists of.
type part struct {
	lock  *Lock
	ofRed bool
}

// parts returns the locks of this package that l consists of.
func parts(l Locker) (all []part) {
	switch l := l.(type) {
	case *Lock:
		return []part{{lock: l}}
	case *Semaphore:
		return []part{{lock: &l.lock}}
	case *multi:
		for _, member := range l.locks {
			all = append(all, parts(member)...)
		}
	case *red:
		for _, member := range l.locks {
			for _, p := range parts(member) {
				all = append(all, part{p.lock, true})
			}
		}
	}
	return all
}

// overlap returns a lock that is part of both a and b and for which matters reports true, or nil.
func overlap(a, b Locker, matters func(a, b part) bool) *Lock {
	for _, x := range parts(a) {
		for _, y := range parts(b) {
			if x.lock.c == y.lock.c && x.lock.key == y.lock.key && matters(x, y) {
				return x.lock
			}
		}
	}
	return nil
}

// labelOf returns the label of a lock. The name of a foreign Locker is not shown.
func labelOf(l Locker) label {
	if ours, ok := l.(interface{ label() label }); ok {
		return ours.label()
	}
	return label{name: l.Name()}
}

// joinLabels returns a label for several locks, with each name once. It is shown if all of theirs
// are.
func joinLabels(what string, locks []Locker) label {
	var names []string
	shown := true
	for _, l := range locks {
		of := labelOf(l)
		shown = shown && of.shown
		if !slices.Contains(names, of.name) {
			names = append(names, of.name)
		}
	}
	return label{what + "(" + strings.Join(names, ", ") + ")", shown}
}

// Name returns the names of the locks in the order of acquisition, each once.
func (m *multi) Name() string { return m.whole.name }

func (m *multi) label() label { return m.whole }

const (
	// waitPerMember times the number of locks is how long a caller that holds some of them waits
	// for the next. Redisson's value.
	waitPerMember = 1500 * time.Millisecond
	// leastTieWait bounds the first wait of that kind for a lock of the same name as another. It
	// doubles tieDoublings times. A longer wait helps neither caller, because the holder of the
	// other lock releases nothing while it waits too.
	leastTieWait = 20 * time.Millisecond
	tieDoublings = 4
	// maxPause bounds the pause between attempts. In an outage it doubles, up to 3.2 s.
	maxPause = 100 * time.Millisecond
)

func (m *multi) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	if err := cmp.Or(opts.check(), m.err); err != nil {
		return nil, opErr("acquire", m.whole, err)
	}
	ctx = effective(ctx)
	if err := m.checkServers(ctx); err != nil {
		return nil, opErr("acquire", m.whole, err)
	}
	b := newBudget(opts.WaitTime, clientOf(m))
	s, err := m.all(ctx, opts, m.tryAll)
	for try := 0; err != nil && b.retryable(err) && !b.over() && ctx.Err() == nil; try++ {
		if try > 0 { // before the attempt, so that one is made when the pause has used up the budget
			longest := maxPause
			if !retryable(err) {
				longest = backoff.Doubled(maxPause, 32*maxPause, try-1)
			}
			if err := b.pause(ctx, rand.N(longest)); err != nil {
				return nil, opErr("acquire", m.whole, err)
			}
		}
		if ctx.Err() != nil {
			break
		}
		s, err = m.all(ctx, opts, func(ctx context.Context, opts AcquireOptions, got []*Lease) error {
			return m.waitForAll(ctx, opts, b, try, got)
		})
	}
	switch {
	case err == nil:
		return &s.Lease, nil
	case ctx.Err() != nil: // its cause may be the loss of another lock, which is not retryable
		return nil, opErr("acquire", m.whole, endedAfter(ctx, err))
	}
	return nil, b.explain(m, err)
}

// checkServers refuses one lock that is a member twice, by two clients of one server. These have
// different owners there, which exclude each other, unless both are readers.
func (m *multi) checkServers(ctx context.Context) error {
	if !m.twins(func(a, b *Lock) bool { return true }) {
		return nil
	}
	identifyAll(ctx, m)
	if m.twins(func(a, b *Lock) bool {
		return a.c.redis.Database() == b.c.redis.Database() && sharedServer(a.c.servers, b.c.servers) != ""
	}) {
		return invalid(ErrInvalidOptions, "core.MultiLock has a lock twice, by two clients of one server; use one client for both")
	}
	return nil
}

// identifyAll asks the servers of all clients of a lock for their run IDs, at the same time.
func identifyAll(ctx context.Context, l Locker) {
	var asking sync.WaitGroup
	defer asking.Wait() // until ctx ends, or CommandTimeout is over
	seen := make(map[*Client]bool)
	for _, p := range parts(l) {
		if c := p.lock.c; !seen[c] && c.servers.known.Load() == nil {
			seen[c] = true
			asking.Go(func() { c.servers.identify(ctx) })
		}
	}
}

// twins reports whether two locks of one key, by different clients, matter.
func (m *multi) twins(matter func(a, b *Lock) bool) bool {
	all := parts(m)
	for i, x := range all {
		for _, y := range all[:i] {
			a, b := x.lock, y.lock
			if a.key == b.key && a.c != b.c && !(a.kind.Shared && b.kind.Shared) && matter(a, b) {
				return true
			}
		}
	}
	return false
}

// retryable reports whether another attempt may succeed after err. A caller with WaitForever waits
// out an outage, as it does with a single lock: its wait for the first lock lasts that long.
func (b *budget) retryable(err error) bool {
	return retryable(err) || b.wait == WaitForever && heals(err)
}

// retryable reports whether another owner has the lock, a lease expired before all members were
// acquired, or masters of a RedLock may come back.
func retryable(err error) bool {
	return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrLockLost) || errors.Is(err, errNoMajority)
}

// all makes one attempt. way acquires the locks and fills in their leases, with an owner of the
// attempt, so that a lock that is named twice is entered twice. The context of the lease does not
// have that owner. If way fails or panics, all releases these leases.
func (m *multi) all(
	ctx context.Context, opts AcquireOptions, way func(context.Context, AcquireOptions, []*Lease) error,
) (s *set, err error) {
	got := make([]*Lease, len(m.locks))
	defer func() {
		if s == nil {
			releaseAll(ctx, got)
		}
	}()
	if err := way(WithOwner(ctx), opts, got); err != nil {
		return nil, err
	}
	return newSet(ctx, m.whole, opts.LeaseTime, got, len(got))
}

// tryAll tries all locks at once, without waiting. Several entries of one lock are tried in order:
// at the same time, they would refuse each other. Foreign Lockers, which may share a lock with
// others, come last, on the caller's goroutine.
func (m *multi) tryAll(ctx context.Context, opts AcquireOptions, got []*Lease) error {
	opts.WaitTime = 0
	errs := make([]error, len(m.locks))
	take := func(places []int) {
		for _, i := range places {
			if got[i], errs[i] = acquireMember(ctx, m.locks[i], opts); errs[i] != nil {
				return
			}
		}
	}
	lanes, rest := m.lanes()
	panics := make([]any, len(lanes))
	var others sync.WaitGroup
	defer others.Wait() // even if the caller's own lane panics
	for i, lane := range lanes {
		if i == len(lanes)-1 && len(rest) == 0 {
			take(lane)
		} else {
			others.Go(func() {
				defer func() { panics[i] = recover() }()
				take(lane)
			})
		}
	}
	others.Wait()
	repanic(panics)
	take(rest)
	return worst(errs)
}

// repanic raises a panic of a member on the caller's goroutine, where the caller may recover it, as
// net/http does.
func repanic(panics []any) {
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
}

// lanes returns the indexes of the locks, grouped so that groups can be tried at the same time, and
// the rest, which cannot.
func (m *multi) lanes() (lanes [][]int, rest []int) {
	type one struct {
		c   *Client
		key string
	}
	known := make(map[one]int)
	for i, l := range m.locks {
		l, ok := l.(*Lock)
		if !ok {
			rest = append(rest, i)
			continue
		}
		lane, ok := known[one{l.c, l.key}]
		if !ok {
			lane = len(lanes)
			known[one{l.c, l.key}] = lane
			lanes = append(lanes, nil)
		}
		lanes[lane] = append(lanes[lane], i)
	}
	return lanes, rest
}

// worst returns the error that waiting helps least: the first that is permanent, else the first of
// an outage, else the first.
func worst(errs []error) error {
	var first, outage error
	for _, err := range errs {
		switch {
		case err == nil:
		case retryable(err):
			first = cmp.Or(first, err)
		case heals(err):
			outage = cmp.Or(outage, err)
		default:
			return err
		}
	}
	return cmp.Or(outage, first)
}

// waitForAll takes one lock after another. The wait for the first may use all of the budget,
// because the caller holds no lock meanwhile. When the last is acquired, the leases of the others
// have run for a while, so waitForAll extends them to their full length.
func (m *multi) waitForAll(ctx context.Context, opts AcquireOptions, b *budget, try int, got []*Lease) (err error) {
	for i, l := range m.locks {
		opts.WaitTime = b.left()
		if i > 0 {
			opts.WaitTime = b.atMost(m.patience(i, try))
		}
		if opts.LeaseTime > 0 {
			for _, lease := range got[:i] {
				opts.WaitTime = b.atMost(min(opts.WaitTime, lease.Remaining()))
			}
		}
		if got[i], err = acquireMember(ctx, l, opts); err != nil {
			return err
		}
	}
	if opts.LeaseTime == 0 {
		return nil
	}
	errs := make([]error, len(got))
	earlier := got[:len(got)-1]
	results := start(earlier, func(l *Lease) error { return l.Extend(ctx, opts.LeaseTime) })
	for range earlier {
		r := <-results
		errs[r.index] = r.err
	}
	return worst(errs)
}

// patience returns how long a caller that holds the locks before the i-th waits for it.
func (m *multi) patience(i, try int) time.Duration {
	longest := time.Duration(len(m.locks)) * waitPerMember
	if !m.tied(i) {
		return longest
	}
	return time.Millisecond + rand.N(backoff.Doubled(leastTieWait, longest, min(try, tieDoublings)))
}

// tied reports whether another process may take the i-th lock before an earlier one: both have the
// same name, but are different locks.
func (m *multi) tied(i int) bool {
	return slices.ContainsFunc(m.locks[:i], func(before Locker) bool {
		if keyOf(before) != keyOf(m.locks[i]) {
			return false
		}
		return clientOf(before) == nil || clientOf(before) != clientOf(m.locks[i])
	})
}

// acquireMember acquires a lock, which may be a foreign Locker.
func acquireMember(ctx context.Context, l Locker, opts AcquireOptions) (*Lease, error) {
	lease, err := l.Acquire(ctx, opts)
	switch {
	case err != nil:
		return nil, err
	case lease == nil:
		err := invalid(ErrInvalidOptions, "a %T returned neither a lease nor an error", l)
		return nil, opErr("acquire", labelOf(l), err)
	}
	return lease, nil
}

// A budget is the WaitTime of an Acquire that makes several attempts.
type budget struct {
	began  time.Time
	wait   time.Duration
	client *Client // the caller waits between attempts in its room; nil: it does not wait
}

func newBudget(wait time.Duration, c *Client) *budget { return &budget{time.Now(), wait, c} }

// left returns the rest of the budget, as a WaitTime.
func (b *budget) left() time.Duration {
	if b.wait == WaitForever {
		return WaitForever
	}
	return max(0, b.wait-time.Since(b.began))
}

func (b *budget) over() bool { return b.left() == 0 }

// atMost returns a WaitTime within the budget that is no longer than d.
func (b *budget) atMost(d time.Duration) time.Duration {
	if b.wait == WaitForever {
		return d
	}
	return min(d, b.left())
}

// pause sleeps for d, but not beyond the budget or the end of ctx. It fails if too many callers of
// the client wait.
func (b *budget) pause(ctx context.Context, d time.Duration) error {
	if c := b.client; c != nil {
		if err := c.room.enter(); err != nil {
			return err
		}
		defer c.room.leave()
	}
	timer := time.NewTimer(b.atMost(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// explain completes the error of the last attempt.
func (b *budget) explain(l Locker, err error) error {
	var held *NotAcquiredError
	if errors.As(err, &held) {
		whole := *held
		whole.Waited = time.Since(b.began)
		return &whole
	}
	if err == claim.ErrLate {
		return opErr("acquire", labelOf(l), err)
	}
	return err
}
