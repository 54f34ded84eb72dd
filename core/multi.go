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
)

// MultiLock returns several locks as one: all of them are acquired, or none. They may be of different kinds and of different
// clients, on different servers; a lock that is named twice counts as entered twice. Redisson: getMultiLock.
//
// All processes take them in the order of their names, whatever the order here, so that two MultiLocks never wait for each
// other; the write lock of a name comes before its read lock. Without waiting, and as a first try with, all are asked at once.
// Where one is refused and there is WaitTime, they are taken one after another. A caller that holds some of them waits for the
// next at most as many times 1.5s as there are locks; then it gives back what it has, pauses for a moment and starts over.
//
// Locks of one name on several servers are taken in the order of the servers' addresses, as the Redis clients have them, if the
// clients have any. Processes may know a server by different addresses and disagree, and each may then hold what the other waits
// for. So a caller that holds one of these locks waits for the next for a short random time only: up to 20 ms at first, and up to
// 320 ms in the end. One of them gives way in time.
//
// The lease stands for all of them: it ends when the first of them does, and if one is lost, the rest is released.
// LeaseTime is given to each. Release tries each, and joins the errors. Acquire fails with the error of the lock that could not be had,
// a *NotAcquiredError with its name among them. Observers and Stats know the members, not the whole.
func MultiLock(locks ...Locker) Locker {
	m := &multi{err: checkMembers("core.MultiLock", locks)}
	if m.err == nil {
		m.err = checkOverlaps(locks)
	}
	if m.err != nil {
		return m
	}
	for _, l := range locks {
		if inner, ok := l.(*multi); ok {
			m.locks = append(m.locks, inner.locks...)
			m.err = cmp.Or(m.err, inner.err)
		} else {
			m.locks = append(m.locks, l)
		}
	}
	slices.SortStableFunc(m.locks, func(a, b Locker) int {
		return cmp.Or(cmp.Compare(keyOf(a), keyOf(b)), cmp.Compare(addressOf(a), addressOf(b)), cmp.Compare(rank(a), rank(b)))
	})
	m.whole = joinLabels("multi", m.locks)
	return m
}

type multi struct {
	locks []Locker // in the order in which they are taken
	whole label
	err   error // why it cannot work
}

// keyOf is what all processes call a lock; its name may have been mapped to that.
func keyOf(l Locker) string {
	if l, ok := l.(*Lock); ok {
		return l.key
	}
	return l.Name()
}

// addressOf is where a lock is, in the words of its Redis client; "": not known.
func addressOf(l Locker) string {
	if c := clientOf(l); c != nil {
		return c.address
	}
	return ""
}

// rank orders locks of one name: whoever reads cannot have the write lock any more.
func rank(l Locker) int {
	if l, ok := l.(*Lock); ok {
		return l.kind.rank
	}
	return 0
}

// checkMembers refuses what can never be a whole.
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

// checkOverlaps refuses a lock that the owner of a RedLock and somebody else are both to have: each attempt at a RedLock has an owner
// of its own.
func checkOverlaps(locks []Locker) error {
	if !slices.ContainsFunc(locks, hasRed) {
		return nil
	}
	for i, l := range locks {
		for j, other := range locks[:i] {
			shared := overlap(other, l, func(a, b part) bool { return (a.ofRed || b.ofRed) && !(a.lock.kind.shared && b.lock.kind.shared) })
			if shared != nil {
				return invalid(ErrInvalidOptions, "locks %d and %d of core.MultiLock both contain the lock %s, one of them as part of a core.RedLock, which has it alone; use it in one of them", j+1, i+1, shared.label())
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

// A part is a lock that another stands for, alone or with others.
type part struct {
	lock  *Lock
	ofRed bool
}

// parts are the locks of this package that l stands for.
func parts(l Locker) (all []part) {
	switch l := l.(type) {
	case *Lock:
		return []part{{lock: l}}
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

// overlap returns a lock that two others both stand for in a way that matters, or nil.
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

// labelOf is the label of a lock that need not be one of ours: a stranger's name is not shown.
func labelOf(l Locker) label {
	if ours, ok := l.(interface{ label() label }); ok {
		return ours.label()
	}
	return label{name: l.Name()}
}

// joinLabels is a label for several locks, each name once. It is shown if each of theirs is.
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

// Name is that of the locks, in the order in which they are taken, each once.
func (m *multi) Name() string { return m.whole.name }

func (m *multi) label() label { return m.whole }

const (
	// waitPerMember is how long a caller that holds some of the locks waits for the next, for each lock that there is. Redisson waits
	// as long.
	waitPerMember = 1500 * time.Millisecond
	// leastTieWait bounds the same at first where the locks are of one name. It doubles tieDoublings times. A longer wait would help
	// neither side: whoever holds the rest gives nothing back meanwhile.
	leastTieWait = 20 * time.Millisecond
	tieDoublings = 4
	// maxPause bounds the pause after that was not enough. In an outage it doubles, up to 3.2 s.
	maxPause = 100 * time.Millisecond
)

func (m *multi) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	if err := cmp.Or(opts.check(), m.err); err != nil {
		return nil, opErr("acquire", m.whole, err)
	}
	ctx = WithOwner(effective(ctx))
	b := newBudget(opts.WaitTime)
	s, err := m.all(ctx, opts, m.tryAll)
	for try := 0; err != nil && b.mayPass(err) && !b.over() && ctx.Err() == nil; try++ {
		s, err = m.all(ctx, opts, func(ctx context.Context, opts AcquireOptions, got []*Lease) error {
			return m.waitForAll(ctx, opts, b, try, got)
		})
		switch {
		case err == nil:
		case mayPass(err):
			b.pause(ctx, rand.N(maxPause))
		case b.mayPass(err):
			b.pause(ctx, rand.N(maxPause<<min(try, 5)))
		}
	}
	switch {
	case err == nil:
		return &s.Lease, nil
	case ctx.Err() != nil: // its cause may be that another lock was lost, or not to be had: that passes no more
		return nil, opErr("acquire", m.whole, endedAfter(ctx, err))
	}
	return nil, b.explain(m, err)
}

// mayPass reports whether another attempt makes sense after an error. A caller that waits for ever waits through an outage, as it
// does with one lock: it asks for the first of them, whose wait outlasts that.
func (b *budget) mayPass(err error) bool {
	return mayPass(err) || b.wait == WaitForever && heals(err)
}

// mayPass reports whether another owner has the lock, a lease was over before the whole was there, or masters of a RedLock may
// come back.
func mayPass(err error) bool {
	return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrLockLost) || errors.Is(err, errNoMajority)
}

// all makes one attempt to get all locks in a way that fills in the leases it got. Those of a failed attempt are given back, also
// when a Locker panics.
func (m *multi) all(ctx context.Context, opts AcquireOptions, way func(context.Context, AcquireOptions, []*Lease) error) (s *set, err error) {
	got := make([]*Lease, len(m.locks))
	defer func() {
		if s == nil {
			releaseAll(ctx, got)
		}
	}()
	if err := way(ctx, opts, got); err != nil {
		return nil, err
	}
	return newSet(ctx, m.whole, opts.LeaseTime, got, len(got))
}

// tryAll asks for all locks at once, without waiting. What is one lock is asked for once at a time, since whoever asks is in
// the way of others for that moment; what is not known to be a lock of its own comes last, on the caller's goroutine.
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
	thrown := make([]any, len(lanes))
	var others sync.WaitGroup
	defer others.Wait() // also where the caller's own lane panics
	for i, lane := range lanes {
		if i == len(lanes)-1 && len(rest) == 0 {
			take(lane)
		} else {
			others.Go(func() {
				defer func() { thrown[i] = recover() }()
				take(lane)
			})
		}
	}
	others.Wait()
	rethrow(thrown)
	take(rest)
	return worst(errs)
}

// rethrow has the caller see the panics of members, which others have recovered from: it may recover, as net/http does.
func rethrow(thrown []any) {
	for _, p := range thrown {
		if p != nil {
			panic(p)
		}
	}
}

// lanes are the places of locks that can be asked for at the same time, and those that cannot.
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

// worst is the error that waiting helps least: the first that stays, or else the first of an outage, or else the first.
func worst(errs []error) error {
	var first, outage error
	for _, err := range errs {
		switch {
		case err == nil:
		case mayPass(err):
			first = cmp.Or(first, err)
		case heals(err):
			outage = cmp.Or(outage, err)
		default:
			return err
		}
	}
	return cmp.Or(outage, first)
}

// waitForAll takes one lock after another. The wait for the first is in nobody's way and may take all the time there is. The
// leases of those taken first have gone on by the time the last is there; they are set to their full length again.
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
		errs[r.place] = r.err
	}
	return worst(errs)
}

// patience is how long a caller that holds the locks before the i-th waits for that.
func (m *multi) patience(i, try int) time.Duration {
	longest := time.Duration(len(m.locks)) * waitPerMember
	if !m.tied(i) {
		return longest
	}
	return time.Millisecond + rand.N(min(leastTieWait<<min(try, tieDoublings), longest))
}

// tied reports whether some process may take the i-th lock before one that comes first here: a lock of the same name that is
// another lock.
func (m *multi) tied(i int) bool {
	return slices.ContainsFunc(m.locks[:i], func(before Locker) bool {
		return keyOf(before) == keyOf(m.locks[i]) && (clientOf(before) == nil || clientOf(before) != clientOf(m.locks[i]))
	})
}

// acquireMember acquires a lock that need not be one of ours.
func acquireMember(ctx context.Context, l Locker, opts AcquireOptions) (*Lease, error) {
	lease, err := l.Acquire(ctx, opts)
	switch {
	case err != nil:
		return nil, err
	case lease == nil:
		return nil, opErr("acquire", labelOf(l), invalid(ErrInvalidOptions, "a %T returned neither a lease nor an error", l))
	}
	return lease, nil
}

// A budget is the WaitTime of one Acquire that makes several attempts.
type budget struct {
	began time.Time
	wait  time.Duration
}

func newBudget(wait time.Duration) *budget { return &budget{time.Now(), wait} }

// left is a WaitTime: what is left of the budget.
func (b *budget) left() time.Duration {
	if b.wait == WaitForever {
		return WaitForever
	}
	return max(0, b.wait-time.Since(b.began))
}

func (b *budget) over() bool { return b.left() == 0 }

// atMost is a WaitTime no longer than d.
func (b *budget) atMost(d time.Duration) time.Duration {
	if b.wait == WaitForever {
		return d
	}
	return min(d, b.left())
}

// pause sleeps, within the budget, unless ctx ends.
func (b *budget) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(b.atMost(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// explain completes the error of the last attempt.
func (b *budget) explain(l Locker, err error) error {
	var held *NotAcquiredError
	if errors.As(err, &held) {
		return &NotAcquiredError{Name: held.Name, TTL: held.TTL, Waited: time.Since(b.began), shown: held.shown}
	}
	if err == errLate {
		return opErr("acquire", labelOf(l), err)
	}
	return err
}
