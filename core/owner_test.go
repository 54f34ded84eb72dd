package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// wantFields checks the hash of a lock in Redis. A nil map wants no hash.
func (fx *redisFixture) wantFields(t testing.TB, key string, want map[string]string) {
	t.Helper()
	got := fx.hash(t, key)
	if len(got) != len(want) {
		t.Fatalf("fields of %q: %v, want %v", key, got, want)
	}
	for field, count := range want {
		if got[field] != count {
			t.Fatalf("fields of %q: %v, want %v", key, got, want)
		}
	}
}

// wantCount checks the hold count of a hold in Redis.
func (fx *redisFixture) wantCount(t testing.TB, l *Lease, want int) {
	t.Helper()
	fx.wantFields(t, holdOf(l).entry.key, map[string]string{holdOf(l).wire: strconv.Itoa(want)})
}

// eventuallyHoldCount waits for a hold count in Redis.
func (fx *redisFixture) eventuallyHoldCount(t testing.TB, l *Lease, want int) {
	t.Helper()
	eventually(t, "the hold count", func() bool { return fx.hash(t, holdOf(l).entry.key)[holdOf(l).wire] == strconv.Itoa(want) })
}

// wantPTTL checks the time to live of a key. It allows for a slow machine.
func (fx *redisFixture) wantPTTL(t testing.TB, key string, want time.Duration) {
	t.Helper()
	if got := fx.pttl(t, key); got > want || got < want-patience {
		t.Fatalf("time to live of %q: %v, want %v", key, got, want)
	}
}

// wantHeldByOther fails the test if another owner can acquire the lock.
func wantHeldByOther(t testing.TB, c *Client, name string) {
	t.Helper()
	lease, err := c.Lock(name).Acquire(bg, AcquireOptions{})
	if err == nil {
		t.Fatalf("another owner acquired %q: %s", name, holdOf(lease).wire)
	}
	wantErr(t, "Acquire by another owner", err, ErrNotAcquired)
}

// Each hold has a new wire owner. No other hold of the process uses it, in any client.
func TestOwner_EachHoldHasItsOwnWireOwner(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	clients := []*Client{fx.newLocks(t), fx.newLocks(t)}
	seen := make(map[string]bool)
	ctx := WithOwner(bg)
	for i := range 40 {
		c := clients[i%2]
		lease := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
		field := holdOf(lease).wire
		number := field[strings.LastIndex(field, ":")+1:]
		if !strings.HasPrefix(field, c.id+":") || seen[number] {
			t.Fatalf("wire owner %q, want %s: and a new number", field, c.id)
		}
		seen[number] = true
		inner := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
		if holdOf(inner).wire != field {
			t.Fatalf("wire owner %q of a re-entry, want the hold's %q", holdOf(inner).wire, field)
		}
		mustRelease(t, inner)
		mustRelease(t, lease)
	}
}

// A stray release arrives when the same owner holds the lock again. It must not free the lock.
func TestRelease_StrayAfterReacquire(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t)
	ctx := WithOwner(bg)

	first := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
	stray := proxy.OnMatch(1, runsScript(releaseScript), redistest.HoldRequest)
	mustRelease(t, first) // The retry frees it.
	second := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})

	stray.Release()
	mustReceive(t, "Redis to run the stray release", stray.Done())
	fx.wantCount(t, second, 1)
	wantHeldByOther(t, c, "a")
	if err := second.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, second)
}

// A stray re-entry arrives when the same owner holds the lock again. It must neither count in the
// new hold nor prolong it.
func TestReentry_StrayAfterReacquire(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t)
	ctx := WithOwner(bg)

	outer := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	stray := proxy.OnMatch(1, runsScript(updateScript), redistest.HoldRequest)
	inner := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour}) // The retry gets it.
	mustRelease(t, inner)
	mustRelease(t, outer)
	next := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})

	stray.Release()
	mustReceive(t, "Redis to run the stray re-entry", stray.Done())
	fx.wantCount(t, next, 1)
	fx.wantPTTL(t, "a", time.Minute)
	mustRelease(t, next)
}

// The script sets the count and adds nothing to it, so a retry changes nothing.
func TestCount_RepeatsChangeNothing(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	updates := countCommands(proxy, runsScript(updateScript))

	proxy.OnMatch(1, runsScript(updateScript), redistest.CutAfter)
	inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{})
	if n := updates(); n != 2 {
		t.Fatalf("the re-entry took %d tries, want 2", n)
	}
	fx.wantCount(t, outer, 2)

	proxy.OnMatch(1, runsScript(updateScript), redistest.CutAfter)
	mustRelease(t, inner)
	if n := updates(); n != 4 {
		t.Fatalf("the partial release took %d tries, want 2", n-2)
	}
	fx.wantCount(t, outer, 1)
	mustRelease(t, outer)
	fx.wantFields(t, "a", nil)
}

// The first try of a re-entry arrives after the count changed. The next change corrects the count.
func TestCount_StrayIsCorrectedByTheNextChange(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newLossyLocks(t)
	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	stray := proxy.OnMatch(1, runsScript(updateScript), redistest.HoldRequest)
	inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{})
	mustRelease(t, inner)
	fx.wantCount(t, outer, 1)
	stray.Release()
	mustReceive(t, "Redis to run the stray re-entry", stray.Done())

	inner = mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{})
	fx.wantCount(t, outer, 2)
	mustRelease(t, inner)
	fx.wantCount(t, outer, 1)
	mustRelease(t, outer)
	fx.wantFields(t, "a", nil)
}

// A re-entry does not count if its caller leaves before the reply.
func TestCount_AbandonedReentry(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})

	held := proxy.OnMatch(1, runsScript(updateScript), redistest.HoldReply)
	ctx, cancel := context.WithCancel(outer.Context())
	inner := acquireAsync(ctx, c.Lock("a"), AcquireOptions{})
	mustReceive(t, "Redis to count the re-entry", held.Hit())
	fx.wantCount(t, outer, 2)
	cancel()
	if r := mustReceive(t, "Acquire to return", inner); !errors.Is(r.err, context.Canceled) {
		t.Fatalf("Acquire: %v, %v", r.lease, r.err)
	}
	held.Release()
	eventually(t, "a count of 1", func() bool { return fx.hash(t, "a")[holdOf(outer).wire] == "1" })
	mustRelease(t, outer)
	fx.wantFields(t, "a", nil)
}

// An expired lease no longer counts. The other leases keep the hold.
func TestCount_ExpiredLease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{LeaseTime: 4 * time.Second})
	fx.wantCount(t, outer, 2)

	mustReceive(t, "the inner lease to end", inner.Done())
	wantErr(t, "Err of the expired lease", inner.Err(), ErrLockLost)
	wantErr(t, "cause of the expired lease's context", context.Cause(inner.Context()), ErrLockLost)
	eventually(t, "a count of 1", func() bool { return fx.hash(t, "a")[holdOf(outer).wire] == "1" })
	if err := outer.Err(); err != nil {
		t.Error(err)
	}
	wantErr(t, "Release of the expired lease", inner.Release(bg), ErrLockLost)
	fx.wantCount(t, outer, 1)
	mustRelease(t, outer)
	fx.wantFields(t, "a", nil)
}

// The hold ends with its last lease, in any order of releases and expiries. A lease that was
// released early does not prolong it.
func TestRelease_LastLeaseFreesTheHold(t *testing.T) {
	t.Parallel()
	const short = 3 * time.Second
	for name, tc := range map[string]struct {
		first, second AcquireOptions
		release       []int // indexes of leases to release; -1 waits until one expires
	}{
		"inner first":                      {AcquireOptions{}, AcquireOptions{}, []int{1, 0}},
		"outer first":                      {AcquireOptions{}, AcquireOptions{}, []int{0, 1}},
		"outer expires, inner released":    {AcquireOptions{LeaseTime: short}, AcquireOptions{}, []int{-1, 1}},
		"inner expires, outer released":    {AcquireOptions{LeaseTime: time.Hour}, AcquireOptions{LeaseTime: short}, []int{-1, 0}},
		"outer released, inner expires":    {AcquireOptions{LeaseTime: time.Hour}, AcquireOptions{LeaseTime: short}, []int{0}},
		"inner released, outer expires":    {AcquireOptions{LeaseTime: short}, AcquireOptions{LeaseTime: time.Hour}, []int{1}},
		"watchdog released, fixed expires": {AcquireOptions{}, AcquireOptions{LeaseTime: short}, []int{0}},
		"both expire":                      {AcquireOptions{LeaseTime: short}, AcquireOptions{LeaseTime: 2 * short}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t)
			ctx := WithOwner(bg)
			leases := []*Lease{mustAcquire(t, ctx, c.Lock("a"), tc.first), mustAcquire(t, ctx, c.Lock("a"), tc.second)}
			for _, i := range tc.release {
				if i < 0 {
					eventually(t, "a lease to expire", func() bool { return leases[0].Err() != nil || leases[1].Err() != nil })
					continue
				}
				if err := leases[i].Release(bg); err != nil && leases[1-i].Err() == nil {
					t.Fatalf("Release: %v", err)
				}
			}
			eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
			next := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
			mustRelease(t, next)
		})
	}
}

// Goroutines of one owner acquire and release at will. The count is the number of leases, and the
// last release frees the lock.
func TestOwner_SharedByGoroutines(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	ctx := WithOwner(bg)
	for range 3 {
		var mu sync.Mutex
		var kept []*Lease
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 10 {
					lease, err := c.Lock("a").Acquire(ctx, AcquireOptions{WaitTime: patience})
					if err != nil {
						t.Error(err)
						return
					}
					if rand.IntN(5) == 0 {
						mu.Lock()
						kept = append(kept, lease)
						mu.Unlock()
					} else if err := lease.Release(bg); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for i, lease := range kept {
			fx.wantCount(t, lease, len(kept)-i)
			mustRelease(t, lease)
		}
		fx.wantFields(t, "a", nil)
	}
}

// lostHold is a hold of two leases. Its lock is gone from Redis, and the client has not noticed.
type lostHold struct {
	*redisFixture
	c      *Client
	ctx    context.Context
	leases []*Lease
	other  *Client
}

func newLostHold(t *testing.T, first, second AcquireOptions, opts ...func(*Options)) *lostHold {
	t.Helper()
	fx := newRedis(t)
	l := &lostHold{redisFixture: fx, other: fx.newLocks(t), c: fx.newLocks(t, opts...), ctx: WithOwner(bg)}
	l.leases = []*Lease{mustAcquire(t, l.ctx, l.c.Lock("a"), first), mustAcquire(t, l.ctx, l.c.Lock("a"), second)}
	if err := fx.rdb.Del(bg, "a").Err(); err != nil {
		t.Fatal(err)
	}
	return l
}

// wantAllLost checks that each lease was lost, unless it was released.
func (l *lostHold) wantAllLost(t *testing.T) {
	t.Helper()
	for i, lease := range l.leases {
		if lease.Err() == ErrReleased {
			continue
		}
		mustReceive(t, "the lease to end", lease.Done())
		wantErr(t, "Err of lease "+strconv.Itoa(i), lease.Err(), ErrLockLost)
		mustReceive(t, "the lease's context to end", lease.Context().Done())
		wantErr(t, "cause of the lease's context", context.Cause(lease.Context()), ErrLockLost)
		if d := lease.Remaining(); d != 0 {
			t.Errorf("%v remain of a lost lease, want 0", d)
		}
		wantErr(t, "Release of a lost lease", lease.Release(bg), ErrLockLost)
	}
}

// Only the first level creates the hash. After the lock has expired and another owner has acquired
// it, any other call of the old owner reports the loss and creates nothing.
func TestReentry_DoesNotReviveAnExpiredLock(t *testing.T) {
	t.Parallel()
	long := AcquireOptions{LeaseTime: time.Hour}
	for name, tc := range map[string]struct {
		opts AcquireOptions
		do   func(l *lostHold) error
	}{
		"re-entry": {AcquireOptions{}, func(l *lostHold) error {
			_, err := l.c.Lock("a").Acquire(l.ctx, AcquireOptions{})
			return err
		}},
		"re-entry with WaitForever": {AcquireOptions{}, func(l *lostHold) error {
			_, err := l.c.Lock("a").Acquire(l.ctx, AcquireOptions{WaitTime: WaitForever})
			return err
		}},
		"extension":       {long, func(l *lostHold) error { return l.leases[0].Extend(bg, 2*time.Hour) }},
		"partial release": {AcquireOptions{}, func(l *lostHold) error { return l.leases[1].Release(bg) }},
	} {
		for _, still := range []bool{false, true} {
			title := name + ", lock free again"
			if still {
				title = name + ", lock held by another"
			}
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				l := newLostHold(t, tc.opts, tc.opts)
				theirs := mustAcquire(t, bg, l.other.Lock("a"), AcquireOptions{})
				if !still {
					mustRelease(t, theirs)
				}
				wantErr(t, name, tc.do(l), ErrLockLost)
				if still {
					l.wantCount(t, theirs, 1)
				} else {
					l.wantFields(t, "a", nil)
				}
				l.wantAllLost(t)
				if still {
					l.wantCount(t, theirs, 1)
					mustRelease(t, theirs)
				}
				// The old owner can acquire the lock anew.
				again := mustAcquire(t, l.ctx, l.c.Lock("a"), AcquireOptions{})
				mustRelease(t, again)
			})
		}
	}
}

// A last release reports a loss if its first try finds nothing.
func TestRelease_ExpiredLock(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	if err := fx.rdb.Del(bg, "a").Err(); err != nil {
		t.Fatal(err)
	}
	theirs := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}) // It is another owner of the same client.
	wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	fx.wantCount(t, theirs, 1)
	mustRelease(t, theirs)
}

// A renewal that finds nothing ends the leases and does not create the hash.
func TestRenewal_ExpiredLock(t *testing.T) {
	t.Parallel()
	l := newLostHold(t, AcquireOptions{}, AcquireOptions{}, watchdogTimeout(6*time.Second))
	l.wantAllLost(t)
	l.wantFields(t, "a", nil)
}

// Nothing shortens the time to live while the hold lasts.
func TestTTL_ReentryNeverShortens(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	fx.wantPTTL(t, "a", time.Hour)

	short := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	fx.wantPTTL(t, "a", time.Hour)
	if err := short.Extend(bg, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	fx.wantPTTL(t, "a", time.Hour)
	watched := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{})
	fx.wantPTTL(t, "a", time.Hour)
	mustRelease(t, watched)
	fx.wantPTTL(t, "a", time.Hour)
	mustRelease(t, short)
	fx.wantPTTL(t, "a", time.Hour)

	long := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{LeaseTime: 2 * time.Hour})
	fx.wantPTTL(t, "a", 2*time.Hour)
	mustRelease(t, long)
	fx.wantPTTL(t, "a", 2*time.Hour)
	if d := outer.Remaining(); d > time.Hour {
		t.Errorf("%v remain of the outer lease, want at most an hour", d)
	}
	mustRelease(t, outer)
}

// Renewals go on beside a longer lease and do not shorten the time to live.
func TestTTL_RenewalNeverShortens(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, watchdogTimeout(6*time.Second))
	outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{})
	for range 2 {
		mustBeRenewed(t, inner)
		fx.wantPTTL(t, "a", time.Hour)
	}
	mustRelease(t, inner)
	mustRelease(t, outer)
}

// If the clock of Redis is set back, all keys live for longer by as much. The next renewals set
// that right, so a holder that dies then does not keep the lock for all that time.
func TestTTL_RenewalAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	eachLockKind(t, func(t *testing.T, kind lockKind) {
		const timeout, step = 9 * time.Second, 10 * time.Minute
		fx := newRedis(t)
		c := fx.newLocks(t, watchdogTimeout(timeout))
		lease := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
		keys := []string{"a"}
		if kind.shared {
			keys = append(keys, wire.ReadTimeout("a", holdOf(lease).wire, 1))
		}
		for _, key := range keys {
			fx.expire(t, key, fx.pttl(t, key)+step)
		}
		for _, key := range keys {
			eventually(t, key+" to live no longer than its lease", func() bool { return fx.pttl(t, key) <= timeout })
		}
		wantHeld(t, lease)
		eventually(t, "the excess to be forgotten", func() bool {
			lease.mu().Lock()
			defer lease.mu().Unlock()
			return holdOf(lease).excess == nil
		})
		mustRelease(t, lease)
	})
}

// A re-entry and an extension get the lease that they ask for even if a renewal that shortens the
// time to live arrives after them.
func TestTTL_LateRenewalShortensNothing(t *testing.T) {
	t.Parallel()
	for name, prolong := range map[string]func(t *testing.T, c *Client, inner *Lease) *Lease{
		"re-entry": func(t *testing.T, c *Client, inner *Lease) *Lease {
			return mustAcquire(t, inner.Context(), c.Lock("a"), AcquireOptions{LeaseTime: 5 * time.Minute})
		},
		"extension": func(t *testing.T, _ *Client, inner *Lease) *Lease {
			if err := inner.Extend(bg, 5*time.Minute); err != nil {
				t.Fatal(err)
			}
			return inner
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const step = 10 * time.Minute
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, watchdogTimeout(9*time.Second), commandTimeout(time.Minute))
			outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
			inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
			h := holdOf(outer)
			seen := func(args []string) bool {
				return runsScript(renewScript)(args) && len(args) == 11 && args[10] != "0"
			}
			held := proxy.OnMatch(1, seen, redistest.HoldRequest)
			fx.expire(t, "a", fx.pttl(t, "a")+step)
			mustReceive(t, "the renewal that shortens the time to live", held.Hit())
			lease := prolong(t, c, inner)
			held.Release()
			eventually(t, "that renewal to be handled", func() bool {
				h.entry.open()
				defer h.entry.close()
				return h.excess == nil || h.excess.expiry == 0
			})
			if left := fx.pttl(t, "a"); left < 4*time.Minute {
				t.Errorf("%v to live, and %v remain of the lease", left, lease.Remaining())
			}
			mustRelease(t, lease)
			if lease != inner {
				mustRelease(t, inner)
			}
			mustRelease(t, outer)
		})
	}
}

// The retry of an acquire finds the hold of the first try. It does not shorten the time to live.
func TestTTL_RepeatedAcquireNeverShortens(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	cut := proxy.OnMatch(1, runsScript(acquireScript), redistest.CutAfter)
	hold := proxy.OnMatch(2, runsScript(acquireScript), redistest.HoldRequest)
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	mustReceive(t, "Redis to run the first try", cut.Hit())
	mustReceive(t, "the retry to be sent", hold.Hit())
	if err := fx.rdb.PExpire(bg, "a", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	hold.Release()
	r := mustReceive(t, "Acquire to return", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	fx.wantCount(t, r.lease, 1)
	fx.wantPTTL(t, "a", time.Hour)
	mustRelease(t, r.lease)
}

func TestExtend(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	if err := lease.Extend(bg, time.Second); err != nil {
		t.Fatal(err)
	}
	fx.wantPTTL(t, "a", time.Minute)
	if d := lease.Remaining(); d < time.Minute-patience || d > time.Minute {
		t.Errorf("%v remain after a shorter extension, want about %v", d, time.Minute)
	}
	if err := lease.Extend(bg, time.Hour); err != nil {
		t.Fatal(err)
	}
	fx.wantPTTL(t, "a", time.Hour)
	if d := lease.Remaining(); d < time.Hour-time.Hour/100-patience || d > time.Hour {
		t.Errorf("%v remain after an extension, want about %v", d, time.Hour)
	}
	fx.wantCount(t, lease, 1)
	for _, d := range []time.Duration{0, -time.Second, time.Millisecond - 1} {
		wantErr(t, "Extend by "+d.String(), lease.Extend(bg, d), ErrInvalidOptions)
	}
	mustRelease(t, lease)
	wantErr(t, "Extend of a released lease", lease.Extend(bg, time.Hour), ErrReleased)

	watched := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	wantErr(t, "Extend of a watchdog lease", watched.Extend(bg, time.Hour), ErrInvalidOptions)
	fx.wantPTTL(t, "a", 30*time.Second)
	mustRelease(t, watched)
	wantErr(t, "Extend of a released watchdog lease", watched.Extend(bg, time.Hour), ErrReleased)
}

// One command at a time changes a hold. Renewals do not wait for it.
func TestHold_OneChangeAtATime(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t, commandTimeout(patience), watchdogTimeout(6*time.Second))
	ctx := WithOwner(bg)
	kept := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
	first := mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{})
	changes := countCommands(proxy, runsScript(updateScript, releaseScript))

	held := proxy.OnMatch(1, runsScript(updateScript), redistest.HoldReply)
	second := acquireAsync(ctx, c.Lock("a"), AcquireOptions{})
	mustReceive(t, "Redis to count the second lease", held.Hit())
	third := acquireAsync(ctx, c.Lock("a"), AcquireOptions{})
	released := make(chan error, 1)
	go func() { released <- first.Release(bg) }()
	mustReceive(t, "the first lease to end", first.Done())

	for range 2 {
		mustBeRenewed(t, kept)
	}
	if n := changes(); n != 1 {
		t.Errorf("%d commands change the hold at once, want 1", n)
	}
	held.Release()
	two, three := mustReceive(t, "the second acquire", second), mustReceive(t, "the third acquire", third)
	if two.err != nil || three.err != nil {
		t.Fatal(two.err, three.err)
	}
	if err := mustReceive(t, "Release to return", released); err != nil {
		t.Fatal(err)
	}
	for i, lease := range []*Lease{two.lease, three.lease, kept} {
		fx.wantCount(t, lease, 3-i)
		mustRelease(t, lease)
	}
}

// An extension gets its turn after Release was called and before the release is sent. It extends
// nothing, and the release frees the lock.
func TestExtend_BetweenReleaseAndItsCommand(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(c *Client) *Lock{
		"plain":  func(c *Client) *Lock { return c.Lock("a") },
		"fair":   func(c *Client) *Lock { return c.FairLock("a") },
		"fenced": func(c *Client) *Lock { return c.FencedLock("a") },
		"read":   func(c *Client) *Lock { return c.ReadWriteLock("a").Read() },
		"write":  func(c *Client) *Lock { return c.ReadWriteLock("a").Write() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(patience))
			lease, err := lock(c).Acquire(bg, AcquireOptions{LeaseTime: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			held := proxy.OnMatch(1, runsScript(updateScript, readWriteUpdateScript), redistest.HoldReply)
			var extended [2]chan error
			for i := range extended {
				extended[i] = make(chan error, 1)
				go func() { extended[i] <- lease.Extend(bg, 2*time.Hour) }()
				if i == 0 {
					mustReceive(t, "Redis to run the first extension", held.Hit())
				}
			}
			eventually(t, "the second extension to queue", func() bool { return holdOf(lease).lineLength() == 1 })
			released := make(chan error, 1)
			go func() { released <- lease.Release(bg) }()
			eventually(t, "the release to queue", func() bool { return holdOf(lease).lineLength() == 2 })
			held.Release()
			for _, err := range extended {
				wantErr(t, "Extend", mustReceive(t, "Extend to return", err), ErrReleased)
			}
			if err := mustReceive(t, "Release to return", released); err != nil {
				t.Errorf("Release: %v", err)
			}
			checkIdleAndClose(t, c, fx.rdb)
		})
	}
}

// Many goroutines release the leases of one hold at once. Each release returns, and one command
// frees the lock.
func TestRelease_Concurrent(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	frees := countCommands(proxy, runsScript(releaseScript))
	ctx := WithOwner(bg)
	for round := range 10 {
		var leases []*Lease
		for range 8 {
			leases = append(leases, mustAcquire(t, ctx, c.Lock("a"), AcquireOptions{}))
		}
		var wg sync.WaitGroup
		for _, lease := range leases {
			wg.Go(func() {
				if err := lease.Release(bg); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		wg.Wait()
		fx.wantFields(t, "a", nil)
		if n := frees(); n != round+1 {
			t.Fatalf("%d commands freed %d holds, want one each", n, round+1)
		}
	}
}

// The hash of a lock has a time to live at all times. A hash without one would block every waiter
// for ever, and Redisson would take the -1 for a grant.
func TestTTL_AlwaysThere(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t, watchdogTimeout(6*time.Second))
	stop, watched := make(chan struct{}), make(chan struct{})
	defer func() {
		close(stop)
		<-watched
	}()
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if ttl, err := fx.rdb.PTTL(bg, "a").Result(); err != nil || ttl == -1 {
				t.Errorf("PTTL: %v, %v; want a time to live", ttl, err)
				return
			}
		}
	}()
	for range 100 {
		outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
		inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{LeaseTime: 20 * time.Second})
		if err := inner.Extend(bg, 40*time.Second); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, outer)
		mustRelease(t, inner)
	}
}

// If Redis refuses PEXPIRE, the hash that HSET created has no time to live. It must not stay.
func TestTTL_RefusedExpireLeavesNoHash(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	limited := fx.newUser(t, "~*", "&*", "+@all", "-pexpire")
	c := fx.newLocksOn(t, limited)
	lease, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	if err == nil {
		t.Fatalf("Acquire succeeded: %s", holdOf(lease).wire)
	}
	eventually(t, "the lock to be free", func() bool { return len(fx.hash(t, "a")) == 0 })
}

// newUser returns a Redis client that logs in as a new user with these ACL rules.
func (fx *redisFixture) newUser(t testing.TB, rules ...any) *redis.Client {
	t.Helper()
	if err := fx.rdb.Do(bg, append([]any{"ACL", "SETUSER", "limited", "on", ">secret"}, rules...)...).Err(); err != nil {
		t.Fatal(err)
	}
	return fx.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" })
}

// A context may be the caller's own code, and ask for a lease of the same name.
func TestAcquire_ContextThatAsksForAnotherLease(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	first := mustAcquire(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{})
	result := acquireAsync(askingContext{bg, first.Err}, c.ReadWriteLock("a").Read(), forever)
	mustRelease(t, mustReceiveLease(t, "the second reader", result))
	mustRelease(t, first)
}

// An askingContext ends when ask returns an error.
type askingContext struct {
	context.Context
	ask func() error
}

func (c askingContext) Err() error { return c.ask() }

// A caller without a context panics, and keeps nothing from others.
func TestExtend_WithoutContext(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Extend without a context did not panic")
			}
		}()
		_ = lease.Extend(nil, time.Hour) //nolint:staticcheck // the mistake that is tested
	}()
	mustRelease(t, lease)
}
