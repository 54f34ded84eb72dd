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
	"github.com/reqlock/reqlock/internal/redistest"
)

// bg is the context of tests that need no other.
var bg = context.Background()

// wantFields checks the hash of a lock in Redis; nil: there is none.
func (b *bundle) wantFields(t testing.TB, key string, want map[string]string) {
	t.Helper()
	got := b.fields(t, key)
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
func (b *bundle) wantCount(t testing.TB, l *Lease, want int) {
	t.Helper()
	b.wantFields(t, holdOf(l).entry.key, map[string]string{holdOf(l).field: strconv.Itoa(want)})
}

// wantPTTL allows for a slow machine.
func (b *bundle) wantPTTL(t testing.TB, key string, want time.Duration) {
	t.Helper()
	if got := b.pttl(t, key); got > want || got < want-patience {
		t.Fatalf("%q has %v to live, want %v", key, got, want)
	}
}

// wantHeldByOther fails the test if somebody else can get the lock.
func wantHeldByOther(t testing.TB, c *Client, name string) {
	t.Helper()
	lease, err := c.Lock(name).Acquire(bg, AcquireOptions{})
	if err == nil {
		t.Fatalf("a second owner got %q: %s", name, holdOf(lease).field)
	}
	wantErr(t, "Acquire by somebody else", err, ErrNotAcquired)
}

// The wire owner of a hold is never used again, by no owner, no lock and no client of the process.
func TestOwner_EachHoldHasItsOwnWireOwner(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	clients := []*Client{b.client(t), b.client(t)}
	seen := make(map[string]bool)
	ctx := WithOwner(bg)
	for i := range 40 {
		c := clients[i%2]
		lease := mustEnter(t, ctx, c, "a", AcquireOptions{})
		field := holdOf(lease).field
		number := field[strings.LastIndex(field, ":")+1:]
		if !strings.HasPrefix(field, c.id+":") || seen[number] {
			t.Fatalf("wire owner %q: want %s: and a number that was not used before", field, c.id)
		}
		seen[number] = true
		inner := mustEnter(t, ctx, c, "a", AcquireOptions{})
		if holdOf(inner).field != field {
			t.Fatalf("a re-entry has wire owner %q, the hold %q", holdOf(inner).field, field)
		}
		mustRelease(t, inner)
		mustRelease(t, lease)
	}
}

// A repeat of an old release, on its way for long, arrives when the same owner holds the lock again.
func TestRelease_StrayAfterReacquire(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.lossy(t)
	ctx := WithOwner(bg)

	first := mustEnter(t, ctx, c, "a", AcquireOptions{})
	stray := proxy.OnMatch(1, runs(releaseScript), redistest.HoldRequest)
	mustRelease(t, first) // by its second try
	second := mustEnter(t, ctx, c, "a", AcquireOptions{})

	stray.Release()
	await(t, "the stray release was executed", stray.Done())
	b.wantCount(t, second, 1)
	wantHeldByOther(t, c, "a")
	if err := second.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, second)
}

// The same with a re-entry: it must neither count in the next hold nor prolong it.
func TestReentry_StrayAfterReacquire(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.lossy(t)
	ctx := WithOwner(bg)

	outer := mustEnter(t, ctx, c, "a", AcquireOptions{LeaseTime: time.Minute})
	stray := proxy.OnMatch(1, runs(updateScript), redistest.HoldRequest)
	inner := mustEnter(t, ctx, c, "a", AcquireOptions{LeaseTime: time.Hour}) // by its second try
	mustRelease(t, inner)
	mustRelease(t, outer)
	next := mustEnter(t, ctx, c, "a", AcquireOptions{LeaseTime: time.Minute})

	stray.Release()
	await(t, "the stray re-entry was executed", stray.Done())
	b.wantCount(t, next, 1)
	b.wantPTTL(t, "a", time.Minute)
	mustRelease(t, next)
}

// The count is set: what is told twice is counted once.
func TestCount_RepeatsChangeNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	outer := mustAcquire(t, c, "a", AcquireOptions{})
	updates := counter(proxy, runs(updateScript))

	proxy.OnMatch(1, runs(updateScript), redistest.CutAfter)
	inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{})
	if n := updates(); n != 2 {
		t.Fatalf("the re-entry took %d tries, want 2", n)
	}
	b.wantCount(t, outer, 2)

	proxy.OnMatch(1, runs(updateScript), redistest.CutAfter)
	mustRelease(t, inner)
	if n := updates(); n != 4 {
		t.Fatalf("the partial release took %d tries, want 2", n-2)
	}
	b.wantCount(t, outer, 1)
	mustRelease(t, outer)
	b.wantFields(t, "a", nil)
}

// A first try of a re-entry arrives when the count has changed since: the next change puts it right.
func TestCount_StrayIsCorrectedByTheNextChange(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.lossy(t)
	outer := mustAcquire(t, c, "a", AcquireOptions{})
	stray := proxy.OnMatch(1, runs(updateScript), redistest.HoldRequest)
	inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{})
	mustRelease(t, inner)
	b.wantCount(t, outer, 1)
	stray.Release()
	await(t, "the stray re-entry was executed", stray.Done())

	inner = mustEnter(t, outer.Context(), c, "a", AcquireOptions{})
	b.wantCount(t, outer, 2)
	mustRelease(t, inner)
	b.wantCount(t, outer, 1)
	mustRelease(t, outer)
	b.wantFields(t, "a", nil)
}

// A re-entry whose caller has left in the meantime does not count.
func TestCount_AbandonedReentry(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, commandTimeout(patience))
	outer := mustAcquire(t, c, "a", AcquireOptions{})

	held := proxy.OnMatch(1, runs(updateScript), redistest.HoldReply)
	ctx, cancel := context.WithCancel(outer.Context())
	inner := acquireAsync(ctx, c.Lock("a"), AcquireOptions{})
	await(t, "Redis counts the re-entry", held.Hit())
	b.wantCount(t, outer, 2)
	cancel()
	if r := await(t, "the caller is let go", inner); !errors.Is(r.err, context.Canceled) {
		t.Fatalf("Acquire: %v, %v", r.lease, r.err)
	}
	held.Release()
	eventually(t, "the count is right again", func() bool { return b.fields(t, "a")[holdOf(outer).field] == "1" })
	mustRelease(t, outer)
	b.wantFields(t, "a", nil)
}

// A lease that runs out leaves the count; the hold goes on with the others.
func TestCount_ExpiredLease(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	outer := mustAcquire(t, c, "a", AcquireOptions{})
	inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{LeaseTime: 4 * time.Second})
	b.wantCount(t, outer, 2)

	await(t, "the inner lease is over", inner.Done())
	wantErr(t, "the lease that ran out", inner.Err(), ErrLockLost)
	wantErr(t, "its context", context.Cause(inner.Context()), ErrLockLost)
	eventually(t, "the count is 1", func() bool { return b.fields(t, "a")[holdOf(outer).field] == "1" })
	if err := outer.Err(); err != nil {
		t.Error(err)
	}
	wantErr(t, "its release", inner.Release(bg), ErrLockLost)
	b.wantCount(t, outer, 1)
	mustRelease(t, outer)
	b.wantFields(t, "a", nil)
}

// The hold is free with its last lease, in whatever order they go, and whatever the longest would have allowed.
func TestRelease_LastLeaseFreesTheHold(t *testing.T) {
	t.Parallel()
	const short = 3 * time.Second
	for name, tc := range map[string]struct {
		first, second AcquireOptions
		release       []int // by number; what is not released runs out
	}{
		"inner first":                        {AcquireOptions{}, AcquireOptions{}, []int{1, 0}},
		"outer first":                        {AcquireOptions{}, AcquireOptions{}, []int{0, 1}},
		"outer runs out, inner released":     {AcquireOptions{LeaseTime: short}, AcquireOptions{}, []int{-1, 1}},
		"inner runs out, outer released":     {AcquireOptions{LeaseTime: time.Hour}, AcquireOptions{LeaseTime: short}, []int{-1, 0}},
		"outer released, inner runs out":     {AcquireOptions{LeaseTime: time.Hour}, AcquireOptions{LeaseTime: short}, []int{0}},
		"inner released, outer runs out":     {AcquireOptions{LeaseTime: short}, AcquireOptions{LeaseTime: time.Hour}, []int{1}},
		"watched one released, one runs out": {AcquireOptions{}, AcquireOptions{LeaseTime: short}, []int{0}},
		"both run out":                       {AcquireOptions{LeaseTime: short}, AcquireOptions{LeaseTime: 2 * short}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c := b.client(t)
			ctx := WithOwner(bg)
			leases := []*Lease{mustEnter(t, ctx, c, "a", tc.first), mustEnter(t, ctx, c, "a", tc.second)}
			for _, i := range tc.release {
				if i < 0 {
					eventually(t, "one of them runs out", func() bool { return leases[0].Err() != nil || leases[1].Err() != nil })
					continue
				}
				if err := leases[i].Release(bg); err != nil && leases[1-i].Err() == nil {
					t.Fatalf("Release: %v", err)
				}
			}
			eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
			next := mustAcquire(t, c, "a", AcquireOptions{})
			mustRelease(t, next)
		})
	}
}

// Goroutines that share an owner enter and leave as they like; the count is the number of leases, and the last one frees.
func TestOwner_SharedByGoroutines(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
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
			b.wantCount(t, lease, len(kept)-i)
			mustRelease(t, lease)
		}
		b.wantFields(t, "a", nil)
	}
}

// lostHold is a hold of two leases whose lock has expired in Redis without anybody here having noticed.
type lostHold struct {
	*bundle
	c      *Client
	ctx    context.Context
	leases []*Lease
	other  *Client
}

func newLostHold(t *testing.T, first, second AcquireOptions, opts ...func(*Options)) *lostHold {
	t.Helper()
	b := newBundle(t)
	l := &lostHold{bundle: b, other: b.client(t), c: b.client(t, opts...), ctx: WithOwner(bg)}
	l.leases = []*Lease{mustEnter(t, l.ctx, l.c, "a", first), mustEnter(t, l.ctx, l.c, "a", second)}
	if err := b.rdb.Del(bg, "a").Err(); err != nil {
		t.Fatal(err)
	}
	return l
}

// wantAllLost checks that every lease of the hold has ended.
func (l *lostHold) wantAllLost(t *testing.T) {
	t.Helper()
	for i, lease := range l.leases {
		if lease.Err() == ErrReleased {
			continue
		}
		await(t, "the lease is told", lease.Done())
		wantErr(t, "Err of lease "+strconv.Itoa(i), lease.Err(), ErrLockLost)
		await(t, "its context ends", lease.Context().Done())
		wantErr(t, "the cause of its context", context.Cause(lease.Context()), ErrLockLost)
		if d := lease.Remaining(); d != 0 {
			t.Errorf("a lost lease has %v remaining", d)
		}
		wantErr(t, "its release", lease.Release(bg), ErrLockLost)
	}
}

// Only the first level makes the hash. Whatever else the owner does after the lock has expired, and another has had it
// in between, finds that it is lost, and makes nothing.
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
		"re-entry that would wait": {AcquireOptions{}, func(l *lostHold) error {
			_, err := l.c.Lock("a").Acquire(l.ctx, AcquireOptions{WaitTime: WaitForever})
			return err
		}},
		"extension":       {long, func(l *lostHold) error { return l.leases[0].Extend(bg, 2*time.Hour) }},
		"partial release": {AcquireOptions{}, func(l *lostHold) error { return l.leases[1].Release(bg) }},
	} {
		for _, still := range []bool{false, true} {
			title := name + ", another has had it"
			if still {
				title = name + ", another has it"
			}
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				l := newLostHold(t, tc.opts, tc.opts)
				theirs := mustAcquire(t, l.other, "a", AcquireOptions{})
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
				// It is lost, and can be taken anew.
				again := mustEnter(t, l.ctx, l.c, "a", AcquireOptions{})
				mustRelease(t, again)
			})
		}
	}
}

// The last release as well: a clean 0 is a loss.
func TestRelease_ExpiredLock(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	if err := b.rdb.Del(bg, "a").Err(); err != nil {
		t.Fatal(err)
	}
	theirs := mustAcquire(t, c, "a", AcquireOptions{}) // of the same client, even
	wantErr(t, "Release", lease.Release(bg), ErrLockLost)
	b.wantCount(t, theirs, 1)
	mustRelease(t, theirs)
}

// A renewal as well: it neither makes the hash nor lets the holder believe that it has it.
func TestRenewal_ExpiredLock(t *testing.T) {
	t.Parallel()
	l := newLostHold(t, AcquireOptions{}, AcquireOptions{}, watchdogTimeout(6*time.Second))
	l.wantAllLost(t)
	l.wantFields(t, "a", nil)
}

// A time to live is never shortened while the field stays.
func TestTTL_ReentryNeverShortens(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	outer := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Hour})
	b.wantPTTL(t, "a", time.Hour)

	short := mustEnter(t, outer.Context(), c, "a", AcquireOptions{LeaseTime: time.Minute})
	b.wantPTTL(t, "a", time.Hour)
	if err := short.Extend(bg, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	b.wantPTTL(t, "a", time.Hour)
	watched := mustEnter(t, outer.Context(), c, "a", AcquireOptions{})
	b.wantPTTL(t, "a", time.Hour)
	mustRelease(t, watched)
	b.wantPTTL(t, "a", time.Hour)
	mustRelease(t, short)
	b.wantPTTL(t, "a", time.Hour)

	long := mustEnter(t, outer.Context(), c, "a", AcquireOptions{LeaseTime: 2 * time.Hour})
	b.wantPTTL(t, "a", 2*time.Hour)
	mustRelease(t, long)
	b.wantPTTL(t, "a", 2*time.Hour)
	if d := outer.Remaining(); d > time.Hour {
		t.Errorf("the other lease has %v remaining, it was taken for an hour", d)
	}
	mustRelease(t, outer)
}

// Renewals too: they go on while a longer lease is there, and leave it its time.
func TestTTL_RenewalNeverShortens(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, watchdogTimeout(6*time.Second))
	outer := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Hour})
	inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{})
	for range 2 {
		awaitRenewals(t, inner)
		b.wantPTTL(t, "a", time.Hour)
	}
	mustRelease(t, inner)
	mustRelease(t, outer)
}

// A repeated acquire finds what its first try has made, and looks at the time to live only then.
func TestTTL_RepeatedAcquireNeverShortens(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	cut := proxy.OnMatch(1, runs(acquireScript), redistest.CutAfter)
	hold := proxy.OnMatch(2, runs(acquireScript), redistest.HoldRequest)
	result := acquireAsync(bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
	await(t, "the first try was executed", cut.Hit())
	await(t, "the second try is on its way", hold.Hit())
	if err := b.rdb.PExpire(bg, "a", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	hold.Release()
	r := await(t, "Acquire returns", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	b.wantCount(t, r.lease, 1)
	b.wantPTTL(t, "a", time.Hour)
	mustRelease(t, r.lease)
}

func TestExtend(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute})
	if err := lease.Extend(bg, time.Second); err != nil {
		t.Fatal(err)
	}
	b.wantPTTL(t, "a", time.Minute)
	if d := lease.Remaining(); d < time.Minute-patience || d > time.Minute {
		t.Errorf("%v remaining after an extension that is shorter, want about %v", d, time.Minute)
	}
	if err := lease.Extend(bg, time.Hour); err != nil {
		t.Fatal(err)
	}
	b.wantPTTL(t, "a", time.Hour)
	if d := lease.Remaining(); d < time.Hour-time.Hour/100-patience || d > time.Hour {
		t.Errorf("%v remaining after an extension, want about %v", d, time.Hour)
	}
	b.wantCount(t, lease, 1)
	for _, d := range []time.Duration{0, -time.Second, time.Millisecond - 1} {
		wantErr(t, "Extend by "+d.String(), lease.Extend(bg, d), ErrInvalidOptions)
	}
	mustRelease(t, lease)
	wantErr(t, "Extend of a released lease", lease.Extend(bg, time.Hour), ErrReleased)

	watched := mustAcquire(t, c, "a", AcquireOptions{})
	wantErr(t, "Extend of a watchdog lease", watched.Extend(bg, time.Hour), ErrInvalidOptions)
	b.wantPTTL(t, "a", 30*time.Second)
	mustRelease(t, watched)
	wantErr(t, "Extend of a watchdog lease that is released", watched.Extend(bg, time.Hour), ErrReleased)
}

// One hold is changed by one command at a time; renewals do not wait for that.
func TestHold_OneChangeAtATime(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, commandTimeout(patience), watchdogTimeout(6*time.Second))
	ctx := WithOwner(bg)
	kept := mustEnter(t, ctx, c, "a", AcquireOptions{})
	first := mustEnter(t, ctx, c, "a", AcquireOptions{})
	changes := counter(proxy, runs(updateScript, releaseScript))

	held := proxy.OnMatch(1, runs(updateScript), redistest.HoldReply)
	second := acquireAsync(ctx, c.Lock("a"), AcquireOptions{})
	await(t, "Redis counts the second lease", held.Hit())
	third := acquireAsync(ctx, c.Lock("a"), AcquireOptions{})
	released := make(chan error, 1)
	go func() { released <- first.Release(bg) }()
	await(t, "the first lease is over", first.Done())

	for range 2 {
		awaitRenewals(t, kept)
	}
	if n := changes(); n != 1 {
		t.Errorf("%d commands change the hold at once", n)
	}
	held.Release()
	two, three := await(t, "the second", second), await(t, "the third", third)
	if two.err != nil || three.err != nil {
		t.Fatal(two.err, three.err)
	}
	if err := await(t, "the release", released); err != nil {
		t.Fatal(err)
	}
	for i, lease := range []*Lease{two.lease, three.lease, kept} {
		b.wantCount(t, lease, 3-i)
		mustRelease(t, lease)
	}
}

// An extension that has its turn between a release and its command finds nothing to extend, and leaves the freeing to the release.
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
			b := newBundle(t)
			c, proxy := b.proxied(t, commandTimeout(patience))
			lease, err := lock(c).Acquire(bg, AcquireOptions{LeaseTime: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			held := proxy.OnMatch(1, runs(updateScript, readWriteUpdateScript), redistest.HoldReply)
			var extended [2]chan error
			for i := range extended {
				extended[i] = make(chan error, 1)
				go func() { extended[i] <- lease.Extend(bg, 2*time.Hour) }()
				if i == 0 {
					await(t, "the first extension is under way", held.Hit())
				}
			}
			eventually(t, "the second stands in line", func() bool { return holdOf(lease).lineLength() == 1 })
			released := make(chan error, 1)
			go func() { released <- lease.Release(bg) }()
			eventually(t, "the release stands behind it", func() bool { return holdOf(lease).lineLength() == 2 })
			held.Release()
			for _, err := range extended {
				wantErr(t, "Extend", await(t, "an extension returns", err), ErrReleased)
			}
			if err := await(t, "the release returns", released); err != nil {
				t.Errorf("Release: %v", err)
			}
			idle(t, c, b.rdb)
		})
	}
}

// Releases of one hold by many goroutines at the same moment: each is answered, the last one frees, once.
func TestRelease_Concurrent(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	frees := counter(proxy, runs(releaseScript))
	ctx := WithOwner(bg)
	for round := range 10 {
		var leases []*Lease
		for range 8 {
			leases = append(leases, mustEnter(t, ctx, c, "a", AcquireOptions{}))
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
		b.wantFields(t, "a", nil)
		if n := frees(); n != round+1 {
			t.Fatalf("%d commands freed %d holds", n, round+1)
		}
	}
}

// A lock hash has a time to live at any moment. One without it would block everybody for ever, and Redisson would take its
// -1 for a grant.
func TestTTL_AlwaysThere(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, watchdogTimeout(6*time.Second))
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
			if ttl, err := b.rdb.PTTL(bg, "a").Result(); err != nil || ttl == -1 {
				t.Errorf("the lock has no end (%v, %v)", ttl, err)
				return
			}
		}
	}()
	for range 100 {
		outer := mustAcquire(t, c, "a", AcquireOptions{})
		inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{LeaseTime: 20 * time.Second})
		if err := inner.Extend(bg, 40*time.Second); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, outer)
		mustRelease(t, inner)
	}
}

// Where PEXPIRE is refused, the hash that HSET has made is without an end: it must not stay.
func TestTTL_RefusedExpireLeavesNoHash(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	limited := b.user(t, "~*", "&*", "+@all", "-pexpire")
	c := b.clientOn(t, limited)
	lease, err := c.Lock("a").Acquire(bg, AcquireOptions{})
	if err == nil {
		t.Fatalf("Acquire succeeded: %s", holdOf(lease).field)
	}
	eventually(t, "the lock is free", func() bool { return len(b.fields(t, "a")) == 0 })
}

// user is a Redis client that logs in as a new user with these rules.
func (b *bundle) user(t testing.TB, rules ...any) *redis.Client {
	t.Helper()
	if err := b.rdb.Do(bg, append([]any{"ACL", "SETUSER", "limited", "on", ">secret"}, rules...)...).Err(); err != nil {
		t.Fatal(err)
	}
	return b.srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password = "limited", "secret" })
}
