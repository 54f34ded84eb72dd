package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core/internal/backoff"
	"github.com/reqlock/reqlock/core/internal/claim"
)

// RedLock returns several locks as one. Each must be on an independent master. Holding the RedLock
// means holding more than half of the locks, so a minority of the masters may be down. There must
// be at least three locks. An even number tolerates no more failures than the odd number below it.
// With fewer than three, no master may fail, and a plain Lock does better. Redisson:
// RedissonRedLock, which has neither the deadlines nor the time-outs below.
//
// Before its first attempt, each client asks its server for the run ID (INFO server). If two clients
// have reached the same server, under whatever address, Acquire returns ErrInvalidOptions. A server
// that denies INFO is not checked.
//
// An attempt tries each member once, all at the same time. It takes up to a tenth of the lease or
// half a second, whichever is shorter. Once a majority is acquired or out of reach, the other
// members get only as long again, plus 20ms. A member is tried at once, past the waiters for its
// name in this process. Without a majority all members are released, including those granted late.
// Until WaitTime is over, the next attempt follows after a random pause of up to 200ms. Each
// attempt has a new owner, so a RedLock is not reentrant. Its lease's context re-enters its members
// when they are acquired alone.
//
// The lease ends when fewer members than a majority are left. As with every lease, a member ends
// lease/100 + 2ms earlier here than on its master, which makes up for clocks that differ in speed.
// Without a LeaseTime, the watchdogs of the clients renew the members. While the majority stands, a
// member that was lost or not granted is acquired again, every third of its client's
// WatchdogTimeout. Release and Extend succeed when a majority has confirmed; the other members are
// released in the background. Observers and Stats see the members only.
//
// Two owners hold the lock at the same time if enough masters lose their data. A master that
// restarts without its data must stay away for one lease (LeaseTime or WatchdogTimeout), or must
// write every command to disk (appendfsync always).
func RedLock(locks ...Locker) Locker {
	r := &red{locks: slices.Clone(locks)}
	if r.err = checkVoters(locks); r.err == nil {
		r.whole = joinLabels("red", locks)
	}
	return r
}

type red struct {
	locks []Locker
	whole label // names all locks together
	err   error // why it can never work
}

const minVoters = 3

func checkVoters(locks []Locker) error {
	if err := checkMembers("core.RedLock", locks); err != nil {
		return err
	}
	if len(locks) < minVoters {
		return invalid(ErrInvalidOptions, "core.RedLock has %d locks; "+
			"use %d or more, each on its own master, or a plain Lock", len(locks), minVoters)
	}
	for i, l := range locks {
		if slices.ContainsFunc(parts(l), func(p part) bool { return p.lock.kind.Counted }) {
			return invalid(ErrInvalidOptions, "lock %d of core.RedLock has permits, which a majority of masters cannot count; "+
				"use locks", i+1)
		}
		for j, other := range locks[:i] {
			if shared := overlap(other, l, func(part, part) bool { return true }); shared != nil {
				return invalid(ErrInvalidOptions, "locks %d and %d of core.RedLock both are, or contain, the lock %s; "+
					"each needs its own master", j+1, i+1, shared.label())
			}
		}
	}
	return nil
}

// Name returns the names of the locks, each once.
func (r *red) Name() string { return r.whole.name }

func (r *red) label() label { return r.whole }

func (r *red) quorum() int { return len(r.locks)/2 + 1 }

// spare returns how many members may fail.
func (r *red) spare() int { return len(r.locks) - r.quorum() }

// The pause between two attempts is random. Its upper bound doubles, up to 200 ms.
const (
	redPause    = 20 * time.Millisecond
	redMaxPause = 160 * time.Millisecond
)

func (r *red) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	if err := cmp.Or(opts.check(), r.err); err != nil {
		return nil, opErr("acquire", r.whole, err)
	}
	ctx = effective(ctx)
	b := newBudget(opts.WaitTime, clientOf(r))
	for try := 0; ; try++ {
		lease, final, err := r.attempt(ctx, opts)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() == nil {
			if final || b.over() {
				return nil, b.explain(r, err)
			}
			pause := backoff.Doubled(redPause, redMaxPause, try)
			if err := b.pause(ctx, pause/4+rand.N(pause)); err != nil {
				return nil, opErr("acquire", r.whole, err)
			}
		}
		if ctx.Err() != nil {
			return nil, opErr("acquire", r.whole, endedAfter(ctx, err))
		}
	}
}

// attempt tries every member once. final reports that no other attempt can do better.
func (r *red) attempt(ctx context.Context, opts AcquireOptions) (lease *Lease, final bool, err error) {
	if ctx.Err() != nil {
		return nil, true, ended(ctx)
	}
	if err := r.checkServers(ctx, r.timeout(opts.LeaseTime)); err != nil {
		return nil, true, opErr("acquire", r.whole, err)
	}
	members, errs := r.tryMembers(withoutQueue(ctx), opts)
	s, err := newSet(ctx, r.whole, opts.LeaseTime, members, r.quorum())
	if err != nil {
		releaseAll(ctx, members)
		final, err = r.verdict(errs)
		return nil, final, err
	}
	if ctx.Err() != nil { // it ended between the majority and the last reply
		s.releaseLater()
		return nil, true, ended(ctx)
	}
	if opts.LeaseTime == 0 {
		r.fillVacancies(s)
	}
	return &s.Lease, false, nil
}

// checkServers refuses two members on one server, as far as the servers are known. They would exclude
// each other, or fail together.
func (r *red) checkServers(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	identifyAll(ctx, r)
	for i, l := range r.locks {
		for j, other := range r.locks[:i] {
			for _, x := range parts(other) {
				for _, y := range parts(l) {
					if id := sharedServer(x.lock.c.servers, y.lock.c.servers); id != "" {
						return invalid(ErrInvalidOptions, "locks %d and %d of core.RedLock are on one server, with the run ID %s; "+
							"each needs its own master", j+1, i+1, id)
					}
				}
			}
		}
	}
	return nil
}

// tryMembers tries every member once, all at the same time. It returns when all have replied, or
// have given up because the time-out is over.
func (r *red) tryMembers(ctx context.Context, opts AcquireOptions) (members []*Lease, errs []error) {
	timeout := r.timeout(opts.LeaseTime)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(timeout, func() { cancel(errNoVote) })
	defer timer.Stop()

	opts.WaitTime, opts.MaxWaiters = 0, 0
	results, panics := make(chan result, len(r.locks)), make([]any, len(r.locks))
	for i, l := range r.locks {
		go func() { // ends with ctx; the loop below waits for it
			v := result{index: i}
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
		members[v.index], errs[v.index] = v.lease, v.err
		if errors.Is(v.err, errNoVote) { // replace the error of ctx, which is not the caller's
			errs[v.index] = opErr("acquire", labelOf(r.locks[v.index]), errNoVote)
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

// timeout returns how long a member has to reply.
func (r *red) timeout(lease time.Duration) time.Duration {
	timeout := redTimeout
	for _, l := range r.locks {
		if c := clientOf(l); c != nil {
			timeout = min(timeout, c.leaseTime(lease)/10)
		}
	}
	return timeout
}

// clientOf returns the client of a lock, or of its first member; nil: unknown.
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

// verdict returns why there was no majority: too many members failed, permanently or this time;
// another owner has the lock; or the majority came too late.
func (r *red) verdict(errs []error) (final bool, _ error) {
	var failed, permanent []error
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
			permanent = append(permanent, err)
		default:
			failed = append(failed, err)
		}
	}
	switch {
	case len(permanent) > r.spare():
		return true, opErr("acquire", r.whole, joinErrors(permanent...))
	case len(permanent)+len(failed) > r.spare():
		err := fmt.Errorf("%w: %w", errNoMajority, joinErrors(append(failed, permanent...)...))
		return false, opErr("acquire", r.whole, err)
	case refusal != nil:
		return false, &NotAcquiredError{Name: r.whole.name, TTL: refusal.TTL, shown: r.whole.shown, holder: refusal.holder}
	}
	return false, claim.ErrLate
}

// isFinal reports whether a member will fail again in another attempt.
func isFinal(err error) bool {
	for _, target := range []error{ErrClosed, ErrWrongKind, ErrInvalidName, ErrInvalidOptions} {
		if errors.Is(err, target) {
			return true
		}
	}
	f := faultOf(err)
	return f != nil && !f.Heals
}

// fillVacancies schedules the acquisition of members that are missing, now or later.
func (r *red) fillVacancies(s *set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.vacancies = make([]*vacancy, len(r.locks))
	for i, l := range r.locks {
		v := &vacancy{set: s, index: i, lock: l, c: clientOf(l), timeout: r.timeout(0)}
		s.vacancies[i] = v
		if m := s.members[i]; m == nil || m.remaining() == 0 {
			v.fillLaterLocked()
		}
	}
}
