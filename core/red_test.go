package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// voters are independent masters with a client on each. Some may be down in the end.
type voters struct {
	masters []*redisFixture
	clients []*Client
}

func newVoters(t testing.TB, n int, opts ...func(*Options)) *voters {
	t.Helper()
	v := &voters{masters: newMasters(t, n)}
	v.join(t, opts...)
	return v
}

// others returns more clients on the same masters.
func (v *voters) others(t testing.TB, opts ...func(*Options)) *voters {
	t.Helper()
	o := &voters{masters: v.masters}
	o.join(t, opts...)
	return o
}

func (v *voters) join(t testing.TB, opts ...func(*Options)) {
	t.Helper()
	for _, fx := range v.masters {
		c := newUncheckedLocks(t, fx.srv.Client(t), append([]func(*Options){commandTimeout(3 * time.Second)}, opts...)...)
		v.clients = append(v.clients, c)
		t.Cleanup(func() { mustClose(t, c) })
	}
}

func (v *voters) locks(name string) (all []Locker) {
	for _, c := range v.clients {
		all = append(all, c.Lock(name))
	}
	return all
}

func (v *voters) redLock(name string) Locker { return RedLock(v.locks(name)...) }

// wantFree waits until the lock is free and the clients are idle on all masters that are not down.
func (v *voters) wantFree(t testing.TB, name string, down ...int) {
	t.Helper()
	for i, fx := range v.masters {
		if slices.Contains(down, i) {
			continue
		}
		eventually(t, fmt.Sprintf("%s to be free on master %d", name, i), func() bool { return len(fx.hash(t, name)) == 0 })
		eventually(t, fmt.Sprintf("client %d to be idle", i), func() bool { return v.clients[i].Stats() == Stats{} })
	}
}

// present returns how many members of a RedLock's lease are held.
func present(lease *Lease) (n int) {
	s := lease.backend.(*set)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m != nil && m.remaining() > 0 {
			n++
		}
	}
	return n
}

// askRed tries until a majority has answered in time: a slow machine is not a dead master.
func askRed(ctx context.Context, red Locker, opts AcquireOptions) (lease *Lease, err error) {
	within(patience, func() bool {
		lease, err = red.Acquire(ctx, opts)
		return !errors.Is(err, errNoMajority)
	})
	return lease, err
}

// acquireAllMembers acquires until all members are held: on a slow machine one may have answered
// too late.
func acquireAllMembers(t testing.TB, l Locker, opts AcquireOptions) (lease *Lease) {
	t.Helper()
	eventually(t, "all members to be held", func() bool {
		lease = mustAcquire(t, bg, l, opts)
		if allHeld(lease) {
			return true
		}
		mustRelease(t, lease)
		return false
	})
	return lease
}

// allHeld reports whether all members of a lease are held, nested ones included.
func allHeld(lease *Lease) bool {
	s, ok := lease.backend.(*set)
	if !ok {
		return lease.Err() == nil
	}
	s.mu.Lock()
	members := slices.Clone(s.members)
	s.mu.Unlock()
	return !slices.ContainsFunc(members, func(m *Lease) bool { return m == nil || !allHeld(m) })
}

// A majority holds the lock. A minority gives its members back.
func TestRed_Majority(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 3)
	other := v.others(t)
	const lease = time.Minute
	opts := AcquireOptions{LeaseTime: lease}
	opts.WaitTime = patience
	whole := mustAcquire(t, bg, v.redLock("r"), opts)
	if whole.Name() != "red(r)" {
		t.Errorf("Name() = %q", whole.Name())
	}
	if got, most := whole.Remaining(), lease-clock.Margin(lease); got <= 0 || got > most {
		t.Errorf("Remaining() = %s, want up to %s", got, most)
	}
	for _, red := range []Locker{v.redLock("r"), other.redLock("r")} { // its own context does not help: an attempt has a new owner
		_, err := askRed(whole.Context(), red, AcquireOptions{})
		var held *NotAcquiredError
		if !errors.As(err, &held) || held.Name != "red(r)" || held.TTL < lease/2 {
			t.Errorf("Acquire while it is held: %#v", err)
		}
	}
	mustRelease(t, whole)
	v.wantFree(t, "r")

	first := mustAcquire(t, bg, other.clients[0].Lock("r"), AcquireOptions{})
	whole = mustAcquire(t, bg, v.redLock("r"), opts)
	if n := present(whole); n != 2 {
		t.Errorf("%d members, want the two that are free", n)
	}
	mustRelease(t, whole)
	second := mustAcquire(t, bg, other.clients[2].Lock("r"), AcquireOptions{})
	_, err := askRed(bg, v.redLock("r"), AcquireOptions{})
	wantErr(t, "Acquire while others have two of three", err, ErrNotAcquired)
	v.wantFree(t, "r", 0, 2)
	mustRelease(t, first)
	mustRelease(t, second)
}

// If the context ends before all members have answered, the caller keeps none, even if a majority
// was granted.
func TestRed_ContextEndsAfterTheMajority(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 2)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	var majority sync.WaitGroup
	majority.Add(2)
	locks := v.locks("r")
	for i, l := range locks {
		locks[i] = lockerFunc(func(ctx context.Context, opts AcquireOptions) (*Lease, error) {
			defer majority.Done()
			return l.Acquire(ctx, opts)
		})
	}
	last := lockerFunc(func(ctx context.Context, _ AcquireOptions) (*Lease, error) {
		majority.Wait()
		cancel()
		return nil, ctx.Err()
	})
	lease, err := RedLock(locks[0], locks[1], last).Acquire(ctx, AcquireOptions{LeaseTime: time.Minute})
	if lease != nil {
		mustRelease(t, lease)
	}
	wantErr(t, "Acquire", err, context.Canceled)
	v.wantFree(t, "r")
}

type lockerFunc func(context.Context, AcquireOptions) (*Lease, error)

func (lockerFunc) Name() string { return "r" }

func (f lockerFunc) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	return f(ctx, opts)
}

// A minority of masters may be dead or frozen. With one more down there is no lock.
func TestRed_MastersDown(t *testing.T) {
	t.Parallel()
	for _, frozen := range []bool{false, true} {
		for down := 1; down <= 3; down++ {
			t.Run(fmt.Sprintf("frozen %v, %d down", frozen, down), func(t *testing.T) {
				t.Parallel()
				v := newVoters(t, 5)
				var gone []int
				for i := range down {
					if frozen {
						v.masters[i].srv.Freeze(t)
						defer v.masters[i].srv.Thaw(t)
					} else {
						v.masters[i].srv.Kill(t)
						gone = append(gone, i)
					}
				}
				opts := AcquireOptions{LeaseTime: time.Minute}
				if down <= 2 {
					opts.WaitTime = patience
				}
				lease, err := v.redLock("r").Acquire(bg, opts)
				if down > 2 {
					if err == nil || errors.Is(err, ErrNotAcquired) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Acquire: %v", err)
					}
					if frozen && !strings.Contains(err.Error(), errNoVote.Error()) {
						t.Errorf("Acquire: %v", err)
					}
				} else {
					if err != nil {
						t.Fatal(err)
					}
					wantHeld(t, lease)
					if n := present(lease); n < 3 || n > 5-down {
						t.Errorf("%d members", n)
					}
					mustRelease(t, lease) // does not mind those that are down
				}
				if frozen {
					for i := range down {
						v.masters[i].srv.Thaw(t)
					}
				}
				v.wantFree(t, "r", gone...) // also where the grant came late
			})
		}
	}
}

// Errors that may pass do not end the attempts of a RedLock, and those of its use or set-up do.
func TestRed_Verdict(t *testing.T) {
	t.Parallel()
	c := newRedis(t).newLocks(t)
	r := RedLock(c.Lock("a"), c.Lock("b"), c.Lock("c")).(*red)
	for err, want := range map[error]bool{
		errNoVote: false, claim.ErrLate: false, claim.ErrForced: false, claim.ErrOutrun: false, ErrNotReplicated: false,
		redisop.ErrTimeout: false, ErrClosed: true, ErrWrongKind: true, redis.ErrClosed: true,
	} {
		member := opErr("acquire", r.locks[0].(*Lock).label(), err)
		if final, got := r.verdict([]error{member, nil, member}); final != want || !errors.Is(got, err) {
			t.Errorf("%v: final %v, %v", err, final, got)
		}
	}
}

// A majority that does not answer in time may do so later: a caller with WaitTime tries again.
func TestRed_WaitsForSilentMasters(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{patience, WaitForever} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			var votes atomic.Int64
			v := newVoters(t, 3, func(o *Options) { o.Observer.Acquired = func(context.Context, Event) { votes.Add(1) } })
			for _, fx := range v.masters[:2] {
				fx.srv.Freeze(t)
			}
			result := acquireAsync(bg, v.redLock("r"), AcquireOptions{WaitTime: wait})
			// Each attempt gets the vote of the third master.
			eventually(t, "a second attempt", func() bool { return votes.Load() >= 2 || len(result) > 0 })
			for _, fx := range v.masters[:2] {
				fx.srv.Thaw(t)
			}
			mustRelease(t, mustReceiveLease(t, "the lock", result))
			v.wantFree(t, "r")
		})
	}
}

// A held RedLock outlives a minority of its masters. With one more it is lost, and the rest is
// released.
func TestRed_MastersGoWhileHeld(t *testing.T) {
	t.Parallel()
	for _, frozen := range []bool{false, true} {
		t.Run(fmt.Sprint("frozen ", frozen), func(t *testing.T) {
			t.Parallel()
			v := newVoters(t, 5, watchdogTimeout(6*time.Second))
			lease := mustAcquire(t, bg, v.redLock("r"), AcquireOptions{WaitTime: patience})
			bound, unbind := lease.Bind(bg)
			defer unbind()
			stop := func(i int) {
				if frozen {
					v.masters[i].srv.Freeze(t)
				} else {
					v.masters[i].srv.Kill(t)
				}
			}
			stop(0)
			stop(1)
			eventually(t, "two members to be lost", func() bool { return present(lease) == 3 })
			for i := 2; i < 5; i++ {
				v.masters[i].eventuallyRenewed(t, "r")
			}
			wantHeld(t, lease)
			stop(2)
			wantLost(t, lease)
			mustReceive(t, "a bound context to end", bound.Done())
			if cause := context.Cause(bound); !errors.Is(cause, ErrLockLost) {
				t.Errorf("cause of a bound context: %v", cause)
			}
			wantErr(t, "Release", lease.Release(bg), ErrLockLost)
			down := []int{0, 1, 2}
			if frozen {
				for _, i := range down {
					v.masters[i].srv.Thaw(t)
				}
				down = nil
			}
			v.wantFree(t, "r", down...)
		})
	}
}

// A member that was lost or refused is acquired again, so that others may be lost after it.
func TestRed_RefillsMembers(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 3, watchdogTimeout(6*time.Second))
	other := v.others(t)
	busy := mustAcquire(t, bg, other.clients[0].Lock("r"), AcquireOptions{})
	ctx, cancel := context.WithCancel(bg)
	lease := mustAcquire(t, ctx, v.redLock("r"), AcquireOptions{WaitTime: patience})
	cancel() // the caller's affair: the lease is held until its release
	mustRelease(t, busy)
	eventually(t, "all three to be held", func() bool { return present(lease) == 3 })
	v.masters[1].srv.Kill(t)
	eventually(t, "one member to be lost", func() bool { return present(lease) == 2 })
	v.masters[1].srv.Restart(t)
	eventually(t, "all three to be held", func() bool { return present(lease) == 3 })
	v.masters[1].wantLocked(t, "r")
	v.masters[2].deleteKeys(t, "r")
	eventually(t, "the third member to be acquired again", func() bool { return present(lease) == 3 && len(v.masters[2].hash(t, "r")) == 1 })
	if err := lease.Err(); err != nil {
		t.Errorf("Err() = %v", err)
	}

	// Without renewal there is nothing to come back to.
	lease.StopRenewal()
	v.masters[0].deleteKeys(t, "r")
	eventually(t, "the lease to end", func() bool { return lease.Err() != nil })
	v.wantFree(t, "r")
}

// The deadline is the latest that a majority reaches.
func TestRed_Deadline(t *testing.T) {
	t.Parallel()
	var clocks []*testClock
	var locks []Locker
	for i, fx := range newMasters(t, 3) {
		clocks = append(clocks, stoppedClock())
		locks = append(locks, fx.newLocksWithClock(t, fx.srv.Client(t), clocks[i]).Lock(fmt.Sprint("r", i)))
	}
	const lease = time.Minute
	full := lease - clock.Margin(lease)
	whole := acquireAllMembers(t, RedLock(locks...), AcquireOptions{LeaseTime: lease, WaitTime: patience})
	want := func(d time.Duration) {
		t.Helper()
		if got := whole.Remaining(); got != d {
			t.Errorf("Remaining() = %s, want %s", got, d)
		}
	}
	move := func(i int, d time.Duration) { clocks[i].move(d, d) }
	want(full)
	move(0, 30*time.Second)
	want(full) // two have more
	move(1, 10*time.Second)
	want(full - 10*time.Second)
	move(0, 40*time.Second) // the first is over
	want(full - 10*time.Second)
	wantHeld(t, whole)
	if err := whole.Extend(bg, lease); err != nil { // by two
		t.Errorf("Extend: %v", err)
	}
	want(full)
	move(2, lease)
	wantErr(t, "Err", whole.Err(), ErrLockLost)
	wantLost(t, whole)
}

// A fixed lease ends by itself, before it does in Redis.
func TestRed_Expires(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 3)
	lease := mustAcquire(t, bg, v.redLock("r"), AcquireOptions{LeaseTime: 3 * time.Second, WaitTime: patience})
	if vacancies := lease.backend.(*set).vacancies; len(vacancies) > 0 {
		t.Errorf("%d places of a fixed lease would be filled again", len(vacancies))
	}
	wantErr(t, "Extend", lease.Extend(bg, 0), ErrInvalidOptions)
	wantLost(t, lease)
	v.wantFree(t, "r")
}

// A waiter gets the lock when the holder releases it, and gives up when WaitTime or its context
// ends.
func TestRed_Waits(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 3)
	other := v.others(t)
	lease := mustAcquire(t, bg, v.redLock("r"), AcquireOptions{WaitTime: patience})
	const wait = 50 * time.Millisecond
	_, err := askRed(bg, other.redLock("r"), AcquireOptions{WaitTime: wait})
	var held *NotAcquiredError
	if !errors.As(err, &held) || held.Waited < wait {
		t.Errorf("after WaitTime: %#v", err)
	}
	ended, cancel := context.WithCancel(bg)
	cancel()
	for patient := 10 * wait; ; patient *= 2 { // on a busy machine a majority may not have answered by then
		ctx, cancel := context.WithTimeout(bg, patient)
		_, err = other.redLock("r").Acquire(ctx, forever)
		cancel()
		wantErr(t, "after ctx", err, context.DeadlineExceeded)
		if errors.Is(err, ErrStillHeld) {
			break
		}
		if patient > patience {
			t.Fatalf("after %s: %v; want ErrStillHeld", patient, err)
		}
	}
	_, err = other.redLock("r").Acquire(ended, AcquireOptions{})
	wantErr(t, "with a ctx that has ended", err, context.Canceled)

	waiting := acquireAsync(bg, other.redLock("r"), forever)
	mustRelease(t, lease)
	mustRelease(t, mustReceiveLease(t, "the lock to be granted", waiting))
	v.wantFree(t, "r")
	other.wantFree(t, "r")
}

// What cannot change is not waited for.
func TestRed_Hopeless(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 3)
	for i := range 2 {
		if err := v.masters[i].rdb.Set(bg, "r", "text", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := v.redLock("r").Acquire(bg, forever)
	wantErr(t, "two of three are no locks", err, ErrWrongKind)
	v.wantFree(t, "r", 0, 1)
	v.masters[0].deleteKeys(t, "r")
	mustRelease(t, mustAcquire(t, bg, v.redLock("r"), AcquireOptions{WaitTime: patience}))
	v.masters[1].deleteKeys(t, "r")

	for i := range 2 {
		if err := v.clients[i].Close(bg); err != nil {
			t.Fatal(err)
		}
	}
	_, err = v.redLock("r").Acquire(bg, forever)
	wantErr(t, "two of three clients are closed", err, ErrClosed)
	v.wantFree(t, "r", 0, 1)
}

// A RedLock outlives the close of one client of three, and ends with the second.
func TestRed_ClosedClients(t *testing.T) {
	t.Parallel()
	v := newVoters(t, 3)
	var clients []*Client
	for _, fx := range v.masters {
		clients = append(clients, newUncheckedLocks(t, fx.srv.Client(t)))
	}
	lease := mustAcquire(t, bg, RedLock((&voters{clients: clients}).locks("r")...), AcquireOptions{WaitTime: patience})
	eventually(t, "all three to be held", func() bool { return present(lease) == 3 })
	gone, cancel := context.WithCancel(bg)
	cancel()
	_ = clients[0].Close(gone)
	wantHeld(t, lease)
	_ = clients[1].Close(gone)
	wantEnded(t, lease, ErrClosed)
	v.wantFree(t, "r")
	mustClose(t, clients[2])
}

// A member passes the waiters of its process, whose attempt may take long. It wakes them when it is
// released.
func TestRed_DoesNotQueue(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(2*patience), pollInterval(time.Hour), watchdogTimeout(9*time.Second))
	plain := newRedis(t).newLocks(t)
	stuck := proxy.OnMatch(1, runsScript(acquireScript), redistest.HoldRequest)
	waiting := acquireAsync(bg, c.Lock("a"), forever)
	mustReceive(t, "the first in the queue to ask", stuck.Hit())
	lease := mustAcquire(t, bg, RedLock(c.Lock("a"), plain.Lock("b"), plain.Lock("c")), AcquireOptions{WaitTime: patience})
	eventually(t, "a to be held", func() bool { return present(lease) == 3 })
	stuck.Release()
	eventuallyWaiting(t, c)
	mustRelease(t, lease)
	mustRelease(t, mustReceiveLease(t, "the waiter for a", waiting))

	// No one else uses the name: it is remembered for as long as it takes.
	for range 5 {
		mustRelease(t, mustAcquire(t, bg, RedLock(c.Lock("a"), plain.Lock("b"), plain.Lock("c")), AcquireOptions{WaitTime: patience}))
	}
}

// MultiLocks and RedLocks can be members of each other.
func TestRed_Nested(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, watchdogTimeout(9*time.Second))
	pair := func(x, y string) Locker { return MultiLock(c.Lock(x), c.Lock(y), c.Lock(x)) }
	red := RedLock(pair("a", "b"), pair("c", "d"), pair("e", "f"))
	multi := MultiLock(c.Lock("z"), red)
	for _, opts := range []AcquireOptions{{WaitTime: patience}, {WaitTime: patience, LeaseTime: time.Minute}} {
		lease := acquireAllMembers(t, multi, opts)
		inner := lease.backend.(*set).members[0] // "red(a, b, c, d, e, f)" comes before "z"
		if opts.LeaseTime > 0 {
			if got, most := lease.Remaining(), opts.LeaseTime-clock.Margin(opts.LeaseTime); got <= 0 || got > most {
				t.Errorf("Remaining() = %s, want up to %s", got, most)
			}
		}
		mustForce(t, c.Lock("a"))
		if n := present(inner); n > 2 && opts.LeaseTime > 0 {
			t.Errorf("%d pairs are held", n)
		}
		wantHeld(t, lease)
		if opts.LeaseTime == 0 {
			eventually(t, "all six to be held again", func() bool { return allHeld(lease) })
			mustRelease(t, lease)
		} else {
			mustForce(t, c.Lock("d"))
			wantLost(t, lease)
		}
		eventually(t, "all locks to be released", func() bool { return c.Stats().Held == 0 })
	}
}

// Under load there are never two holders, and every caller gets its turns.
func TestRed_Load(t *testing.T) {
	t.Parallel()
	one := newVoters(t, 3)
	two := one.others(t)
	checkExclusion(t, 6, 5, AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Minute}, func(i int) Locker {
		return []*voters{one, two}[i%2].redLock("r")
	})
	one.wantFree(t, "r")
	two.wantFree(t, "r")
}
