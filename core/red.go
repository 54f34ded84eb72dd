package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// RedLock returns several locks, each on a master of its own that knows nothing of the others, as one lock. Holding more than half
// of them is holding it: any smaller number of masters may be down. There must be three or more; an even number tolerates no more
// failures than the odd one below it. With fewer than three no master may fail, and a Lock does better. Redisson: RedissonRedLock,
// which knows neither the deadlines nor the time-outs below.
//
// An attempt asks all masters at once, each once, for a tenth of the lease or half a second, whichever is shorter. As soon as a
// majority is there, or out of reach, the rest has only as long again. A member never queues behind others that wait for its name.
// Without a majority all members are given back, also those granted late. After a random pause the next attempt has a new owner,
// until WaitTime is over. A RedLock is therefore not reentrant. Waiting for it means asking again, five times a second at least.
//
// The lease ends when less than a majority of the members is left. Each of them ends lease/100 + 2ms earlier here than on its
// master, as every lease does, so that clocks of different speed do no harm. Without a LeaseTime the watchdogs of the clients keep
// the members, and as long as the majority stands, members that were lost or not granted are acquired again, every third of the
// WatchdogTimeout of their client. Release and Extend succeed when a majority has confirmed. The rest is released in the
// background. Observers and Stats know the members, not the whole.
//
// Two hold the lock at the same time if enough masters forget: a master that restarts without its data must stay away for one lease
// (LeaseTime, or WatchdogTimeout), or else write every command to its disk (appendfsync always).
func RedLock(locks ...Locker) Locker {
	r := &red{locks: slices.Clone(locks)}
	if r.err = checkVoters(locks); r.err == nil {
		r.whole = joinLabels("red", locks)
	}
	return r
}

type red struct {
	locks []Locker
	whole label
	err   error // why it cannot work
}

const minVoters = 3

func checkVoters(locks []Locker) error {
	if err := checkMembers("core.RedLock", locks); err != nil {
		return err
	}
	if len(locks) < minVoters {
		return invalid(ErrInvalidOptions, "core.RedLock has %d locks; use %d or more, each on a master of its own, or a plain Lock", len(locks), minVoters)
	}
	for i, l := range locks {
		for j, other := range locks[:i] {
			if shared := overlap(other, l, func(part, part) bool { return true }); shared != nil {
				return invalid(ErrInvalidOptions, "locks %d and %d of core.RedLock both are, or contain, the lock %s; each needs a master of its own", j+1, i+1, shared.label())
			}
		}
	}
	return nil
}

// Name is that of the locks, each name once.
func (r *red) Name() string { return r.whole.name }

func (r *red) label() label { return r.whole }

func (r *red) quorum() int { return len(r.locks)/2 + 1 }

// spare is how many members may fail.
func (r *red) spare() int { return len(r.locks) - r.quorum() }

// Between two attempts there is a pause of a random length, up to an upper bound that doubles: 200 ms in the end.
const (
	redPause    = 20 * time.Millisecond
	redMaxPause = 160 * time.Millisecond
)

func (r *red) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	if err := cmp.Or(opts.check(), r.err); err != nil {
		return nil, opErr("acquire", r.whole, err)
	}
	ctx = effective(ctx)
	b := newBudget(opts.WaitTime)
	for try := 0; ; try++ {
		lease, final, err := r.attempt(ctx, opts)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() == nil {
			if final || b.over() {
				return nil, b.explain(r, err)
			}
			pause := min(redPause<<min(try, 10), redMaxPause)
			b.pause(ctx, pause/4+rand.N(pause))
		}
		if ctx.Err() != nil {
			return nil, opErr("acquire", r.whole, endedAfter(ctx, err))
		}
	}
}

// attempt asks every member once. final says that no other attempt will do better.
func (r *red) attempt(ctx context.Context, opts AcquireOptions) (lease *Lease, final bool, err error) {
	if ctx.Err() != nil {
		return nil, true, ended(ctx)
	}
	ctx = withVoter(ctx)
	members, errs := r.ask(ctx, opts)
	s, err := newSet(ctx, r.whole, opts.LeaseTime, members, r.quorum())
	if err != nil {
		releaseAll(ctx, members)
		final, err = r.verdict(errs)
		return nil, final, err
	}
	if ctx.Err() != nil { // when the majority was there, and others had not answered yet
		s.abandon()
		return nil, true, ended(ctx)
	}
	if opts.LeaseTime == 0 {
		r.fillVacancies(s)
	}
	return &s.Lease, false, nil
}

// ask asks every member once, all at the same time, for no longer than the time-out. All have answered when it returns, if
// only that they will not in time.
func (r *red) ask(ctx context.Context, opts AcquireOptions) (members []*Lease, errs []error) {
	timeout := r.timeout(opts.LeaseTime)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(timeout, func() { cancel(errNoVote) })
	defer timer.Stop()

	opts.WaitTime, opts.MaxWaiters = 0, 0
	results, panics := make(chan result, len(r.locks)), make([]any, len(r.locks))
	for i, l := range r.locks {
		go func() { // it ends with ctx, and is waited for below
			v := result{place: i}
			defer func() {
				panics[i] = recover()
				results <- v
			}()
			v.lease, v.err = acquireMember(ctx, l, opts)
		}()
	}

	began := time.Now()
	members, errs = make([]*Lease, len(r.locks)), make([]error, len(r.locks))
	yes, no, decided := 0, 0, false
	for range r.locks {
		v := <-results
		members[v.place], errs[v.place] = v.lease, v.err
		if errors.Is(v.err, errNoVote) { // which is no matter of the caller's context
			errs[v.place] = opErr("acquire", labelOf(r.locks[v.place]), errNoVote)
		}
		if v.err == nil {
			yes++
		} else {
			no++
		}
		if !decided && (yes == r.quorum() || no > r.spare()) {
			decided = true
			spent := time.Since(began)
			timer.Reset(min(timeout, 2*spent+redGrace) - spent)
		}
	}
	if slices.ContainsFunc(panics, func(p any) bool { return p != nil }) {
		releaseAll(ctx, members)
	}
	repanic(panics)
	return members, errs
}

const (
	redTimeout = 500 * time.Millisecond
	redGrace   = 20 * time.Millisecond
)

// timeout is how long a member has to answer.
func (r *red) timeout(lease time.Duration) time.Duration {
	timeout := redTimeout
	for _, l := range r.locks {
		if c := clientOf(l); c != nil {
			timeout = min(timeout, c.leaseTime(lease)/10)
		}
	}
	return timeout
}

// clientOf is the client of a lock, or of one of its members; nil: it is not known.
func clientOf(l Locker) *Client {
	switch l := l.(type) {
	case *Lock:
		return l.c
	case *multi:
		return clientOf(l.locks[0])
	case *red:
		return clientOf(l.locks[0])
	}
	return nil
}

// verdict says why there was no majority: too many members failed, for ever or this time; or somebody else has the lock; or
// the majority came too late.
func (r *red) verdict(errs []error) (final bool, _ error) {
	var failed, hopeless []error
	var refusal *NotAcquiredError
	for _, err := range errs {
		var held *NotAcquiredError
		switch {
		case err == nil:
		case errors.As(err, &held):
			if refusal == nil || held.TTL > refusal.TTL {
				refusal = held
			}
		case isFinal(err):
			hopeless = append(hopeless, err)
		default:
			failed = append(failed, err)
		}
	}
	switch {
	case len(hopeless) > r.spare():
		return true, opErr("acquire", r.whole, errors.Join(hopeless...))
	case len(hopeless)+len(failed) > r.spare():
		return false, opErr("acquire", r.whole, fmt.Errorf("%w: %w", errNoMajority, errors.Join(append(failed, hopeless...)...)))
	case refusal != nil:
		return false, &NotAcquiredError{Name: r.whole.name, TTL: refusal.TTL, shown: r.whole.shown}
	}
	return false, errLate
}

// isFinal reports whether a member will do no better another time.
func isFinal(err error) bool {
	for _, target := range []error{ErrClosed, ErrWrongKind, ErrInvalidName, ErrInvalidOptions} {
		if errors.Is(err, target) {
			return true
		}
	}
	f := faultOf(err)
	return f != nil && !f.Heals
}

// fillVacancies has the places of members that are not there filled, now and later.
func (r *red) fillVacancies(s *set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.vacancies = make([]*vacancy, len(r.locks))
	for i, l := range r.locks {
		v := &vacancy{set: s, place: i, lock: l, c: clientOf(l), timeout: r.timeout(0)}
		s.vacancies[i] = v
		if m := s.members[i]; m == nil || m.remaining() == 0 {
			v.fillLaterLocked()
		}
	}
}
