package core

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/internal/redistest"
)

// What is promised on a real Redis holds on the one in the process as well, so that examples and users' tests see the same
// locks as production.
func TestContract(t *testing.T) {
	t.Parallel()
	servers := map[string]func(t *testing.T) *redis.Client{
		"redis": func(t *testing.T) *redis.Client { return redistest.Start(t).Client(t) },
		"embedded": func(t *testing.T) *redis.Client {
			srv, err := embedded.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = srv.Close() })
			return srv.Client()
		},
	}
	for server, start := range servers {
		for name, test := range contract {
			t.Run(server+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, start(t))
			})
		}
	}
}

var contract = map[string]func(t *testing.T, rdb *redis.Client){
	"the wire content":            contractWire,
	"re-entry":                    contractReentry,
	"a refusal":                   contractRefusal,
	"a release wakes a waiter":    contractWake,
	"a lease runs out":            contractLeaseRunsOut,
	"an extension":                contractExtend,
	"the watchdog renews":         contractWatchdog,
	"a hold that is gone is told": contractGone,
	"force unlock":                contractForceUnlock,
	"a key of another type":       contractWrongKind,
	"kinds on one name":           contractKinds,
	"queries":                     contractQueries,
	"close":                       contractClose,
	"no step is lost":             contractExclusion,
	"a record":                    contractRecord,
	"a marker":                    contractMarker,
}

// contractClient is a lock client on a server of either sort.
func contractClient(t *testing.T, rdb *redis.Client, opts ...func(*Options)) (*Client, *bundle) {
	b := &bundle{rdb: rdb}
	return b.clientOn(t, rdb, append(opts, commandTimeout(patience))...), b
}

func contractWire(t *testing.T, rdb *redis.Client) {
	ctx := context.Background()
	c, b := contractClient(t, rdb)
	sub := rdb.Subscribe(ctx, "redisson_lock__channel:{order:42}")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}

	lease := mustAcquire(t, c, "order:42", AcquireOptions{LeaseTime: time.Minute})
	if typ := rdb.Type(ctx, "order:42").Val(); typ != "hash" {
		t.Errorf("the key is a %s", typ)
	}
	fields := b.fields(t, "order:42")
	if len(fields) != 1 {
		t.Errorf("fields: %v", fields)
	}
	form := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:[1-9][0-9]*$`)
	for field, count := range fields {
		if !form.MatchString(field) || count != "1" {
			t.Errorf("field %q is %q", field, count)
		}
	}
	if ttl := b.pttl(t, "order:42"); ttl > time.Minute || ttl < time.Minute-patience {
		t.Errorf("%v to live", ttl)
	}

	mustRelease(t, lease)
	if n := rdb.Exists(ctx, "order:42").Val(); n != 0 {
		t.Error("the key is still there")
	}
	select {
	case m := <-sub.Channel():
		if m.Payload != "0" {
			t.Errorf("published %q", m.Payload)
		}
	case <-time.After(patience):
		t.Error("nothing was published")
	}
	if err := lease.Release(ctx); !errors.Is(err, ErrReleased) {
		t.Errorf("a second Release: %v", err)
	}
}

func contractReentry(t *testing.T, rdb *redis.Client) {
	c, b := contractClient(t, rdb)
	outer := mustAcquire(t, c, "a", AcquireOptions{})
	inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{})
	count := func(want string) {
		t.Helper()
		fields := b.fields(t, "a")
		if len(fields) != 1 || fields[holdOf(outer).field] != want {
			t.Errorf("fields: %v, want the count %s", fields, want)
		}
	}
	count("2")
	mustRelease(t, outer)
	count("1")
	mustRelease(t, inner)
	if fields := b.fields(t, "a"); len(fields) != 0 {
		t.Errorf("left: %v", fields)
	}
}

func contractRefusal(t *testing.T, rdb *redis.Client) {
	c, _ := contractClient(t, rdb)
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute})
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		_, err := c.Lock("a").Acquire(context.Background(), AcquireOptions{WaitTime: wait})
		var held *NotAcquiredError
		if !errors.As(err, &held) {
			t.Fatalf("Acquire: %v", err)
		}
		if held.Name != "a" || held.TTL <= time.Minute-patience || held.TTL > time.Minute || held.Waited < wait {
			t.Errorf("WaitTime %v: %+v", wait, held)
		}
	}
	mustRelease(t, lease)
}

func contractWake(t *testing.T, rdb *redis.Client) {
	ctx := context.Background()
	holder, b := contractClient(t, rdb)
	waiter, _ := contractClient(t, rdb, pollInterval(time.Hour))
	lease := mustAcquire(t, holder, "a", AcquireOptions{LeaseTime: time.Hour})
	result := acquireAsync(ctx, waiter.Lock("a"), AcquireOptions{WaitTime: WaitForever})
	b.eventuallyListens(t, "a")
	mustRelease(t, lease)
	r := await(t, "the waiter gets it", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	mustRelease(t, r.lease)
}

// eventuallyListens waits until some client has subscribed to the releases of a lock.
func (b *bundle) eventuallyListens(t testing.TB, name string) {
	t.Helper()
	channel := plainLock.channel(name, "")
	eventually(t, "somebody listens for releases of "+name, func() bool {
		return b.rdb.PubSubNumSub(context.Background(), channel).Val()[channel] > 0
	})
}

func contractLeaseRunsOut(t *testing.T, rdb *redis.Client) {
	ctx := context.Background()
	c, _ := contractClient(t, rdb)
	other, _ := contractClient(t, rdb)
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: 3 * time.Second})
	next := mustAcquire(t, other, "a", AcquireOptions{WaitTime: patience})
	if err := lease.Err(); err != ErrLockLost {
		t.Errorf("somebody else has it, Err is %v", err)
	}
	await(t, "the holder is told", lease.Done())
	if cause := context.Cause(lease.Context()); cause != ErrLockLost {
		t.Errorf("cause: %v", cause)
	}
	if err := lease.Release(ctx); !errors.Is(err, ErrLockLost) {
		t.Errorf("Release: %v", err)
	}
	if err := next.Err(); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	mustRelease(t, next)
}

func contractExtend(t *testing.T, rdb *redis.Client) {
	c, b := contractClient(t, rdb)
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute})
	if err := lease.Extend(context.Background(), time.Hour); err != nil {
		t.Fatal(err)
	}
	if ttl := b.pttl(t, "a"); ttl > time.Hour || ttl < time.Hour-patience {
		t.Errorf("%v to live", ttl)
	}
	if left := lease.Remaining(); left > time.Hour || left < 59*time.Minute-patience {
		t.Errorf("%v remain", left)
	}
	mustRelease(t, lease)
}

func contractWatchdog(t *testing.T, rdb *redis.Client) {
	if testing.Short() {
		t.Skip("outlives a lease of 6 seconds")
	}
	const watchdog = 6 * time.Second
	c, b := contractClient(t, rdb, watchdogTimeout(watchdog))
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	began := time.Now()
	eventually(t, "more than the lease has passed", func() bool { return time.Since(began) > watchdog*5/4 })
	if err := lease.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	if fields := b.fields(t, "a"); fields[holdOf(lease).field] != "1" {
		t.Errorf("fields: %v", fields)
	}
	mustRelease(t, lease)
}

func contractGone(t *testing.T, rdb *redis.Client) {
	c, _ := contractClient(t, rdb, watchdogTimeout(6*time.Second))
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	rdb.Del(context.Background(), "a")
	await(t, "the holder is told", lease.Done())
	if err := lease.Err(); err != ErrLockLost {
		t.Errorf("Err: %v", err)
	}
}

func contractForceUnlock(t *testing.T, rdb *redis.Client) {
	ctx := context.Background()
	holder, b := contractClient(t, rdb, watchdogTimeout(6*time.Second))
	other, _ := contractClient(t, rdb, pollInterval(time.Hour))
	lease := mustAcquire(t, holder, "a", AcquireOptions{})
	result := acquireAsync(ctx, other.Lock("a"), AcquireOptions{WaitTime: WaitForever, LeaseTime: time.Hour})
	b.eventuallyListens(t, "a")
	if freed, err := other.Lock("a").ForceUnlock(ctx); !freed || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", freed, err)
	}
	r := await(t, "a waiter gets it", result)
	if r.err != nil {
		t.Fatal(r.err)
	}
	await(t, "the holder is told", lease.Done())
	if err := lease.Err(); err != ErrLockLost {
		t.Errorf("Err: %v", err)
	}
	mustRelease(t, r.lease)
	if freed, err := other.Lock("a").ForceUnlock(ctx); freed || err != nil {
		t.Errorf("ForceUnlock of a free lock: %v, %v", freed, err)
	}
}

func contractWrongKind(t *testing.T, rdb *redis.Client) {
	ctx := context.Background()
	c, b := contractClient(t, rdb)
	rdb.Set(ctx, "a", "something else", 0)
	lock := c.Lock("a")
	_, acquire := lock.Acquire(ctx, AcquireOptions{WaitTime: patience})
	_, query := lock.IsLocked(ctx)
	_, force := lock.ForceUnlock(ctx)
	for what, err := range map[string]error{"Acquire": acquire, "IsLocked": query, "ForceUnlock": force} {
		if !errors.Is(err, ErrWrongKind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if v := rdb.Get(ctx, "a").Val(); v != "something else" {
		t.Errorf("the key is %q now", v)
	}
	rdb.Del(ctx, "a")
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	rdb.Del(ctx, "a")
	rdb.Set(ctx, "a", "something else", 0)
	if err := lease.Release(ctx); !errors.Is(err, ErrWrongKind) {
		t.Errorf("Release: %v", err)
	}
	if ttl := b.pttl(t, "a"); ttl != -1 {
		t.Errorf("the key of somebody else has %v to live", ttl)
	}
	rdb.Del(ctx, "a")
}

// Redis can tell a read/write lock from the others, which are all alike to it; docs/redisson.md has this table. Redisson grants a
// read/write lock on the name of a plain one. Two holders must not come of that here.
func contractKinds(t *testing.T, rdb *redis.Client) {
	holder, _ := contractClient(t, rdb)
	asker, _ := contractClient(t, rdb)
	kinds := map[string]func(c *Client) Locker{
		"lock":   func(c *Client) Locker { return c.Lock("a") },
		"fair":   func(c *Client) Locker { return c.FairLock("a") },
		"fenced": func(c *Client) Locker { return c.FencedLock("a") },
		"once":   func(c *Client) Locker { return onceLocker{c.Once("a")} },
		"read":   func(c *Client) Locker { return c.ReadWriteLock("a").Read() },
		"write":  func(c *Client) Locker { return c.ReadWriteLock("a").Write() },
	}
	hasSides := func(kind string) bool { return kind == "read" || kind == "write" }
	for held, hold := range kinds {
		for asked, ask := range kinds {
			lease := mustTake(t, bg, hold(holder), AcquireOptions{})
			want := ErrNotAcquired
			switch {
			case hasSides(held) != hasSides(asked):
				want = ErrWrongKind
			case held == "read" && asked == "read":
				want = nil
			}
			for _, c := range []*Client{holder, asker} {
				l := ask(c)
				got, err := l.Acquire(bg, AcquireOptions{})
				if !errors.Is(err, want) {
					t.Errorf("%s on a held %s: %v, want %v", asked, held, err, want)
				}
				if err == nil {
					mustRelease(t, got)
				}
				if want == ErrWrongKind { // nor is it waited for
					if _, err := l.Acquire(bg, AcquireOptions{WaitTime: time.Second}); !errors.Is(err, ErrWrongKind) {
						t.Errorf("%s on a held %s, with WaitTime: %v, want %v", asked, held, err, ErrWrongKind)
					}
				}
			}
			mustRelease(t, lease)
		}
	}
	if n := rdb.Exists(bg, "a").Val(); n != 0 {
		t.Error("the lock is left")
	}
}

// A onceLocker is a Once that has no record.
type onceLocker struct{ once *Once }

func (l onceLocker) Name() string { return l.once.Name() }

func (l onceLocker) Acquire(ctx context.Context, opts AcquireOptions) (*Lease, error) {
	lease, _, err := l.once.Acquire(ctx, opts)
	if err != nil {
		return nil, err
	}
	return lease.Lease, nil
}

func contractQueries(t *testing.T, rdb *redis.Client) {
	c, _ := contractClient(t, rdb)
	ctx := context.Background()
	lock := c.Lock("a")
	check := func(state string, owner context.Context, locked, held bool, count int, ttl time.Duration) {
		t.Helper()
		gotLocked, err1 := lock.IsLocked(owner)
		gotHeld, err2 := lock.IsHeld(owner)
		gotCount, err3 := lock.HoldCount(owner)
		gotTTL, err4 := lock.RemainingTTL(owner)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		if gotLocked != locked || gotHeld != held || gotCount != count || gotTTL > ttl || gotTTL < max(0, ttl-patience) {
			t.Errorf("%s: locked %v, held %v, count %d, %v to live", state, gotLocked, gotHeld, gotCount, gotTTL)
		}
	}
	check("free", ctx, false, false, 0, 0)
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute})
	owner := context.WithoutCancel(lease.Context())
	again := mustEnter(t, owner, c, "a", AcquireOptions{LeaseTime: time.Minute})
	check("held twice", owner, true, true, 2, time.Minute)
	check("held by somebody else", ctx, true, false, 0, time.Minute)
	mustRelease(t, again)
	check("held once", owner, true, true, 1, time.Minute)
	mustRelease(t, lease)
	check("released", owner, false, false, 0, 0)
}

func contractClose(t *testing.T, rdb *redis.Client) {
	c := newLooseClient(t, rdb)
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	ctx := context.Background()
	waiter := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "it waits", func() bool { return c.Stats().Waiting == 1 })
	closing, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := c.Close(closing); err == nil || !strings.Contains(err.Error(), "1 locks were still held") {
		t.Errorf("Close: %v", err)
	}
	if r := await(t, "the waiter is let go", waiter); !errors.Is(r.err, ErrClosed) {
		t.Errorf("Acquire: %v", r.err)
	}
	if cause := context.Cause(lease.Context()); cause != ErrClosed {
		t.Errorf("cause: %v", cause)
	}
	if s := c.Stats(); s != (Stats{}) {
		t.Errorf("left in the client: %+v", s)
	}
	if keys := rdb.Keys(ctx, "*").Val(); len(keys) != 0 {
		t.Errorf("left in Redis: %q", keys)
	}
}

func contractExclusion(t *testing.T, rdb *redis.Client) {
	first, b := contractClient(t, rdb)
	second, _ := contractClient(t, rdb)
	b.countTogether(t, []*Client{first, second}, 4, 10)
}
