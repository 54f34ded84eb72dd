package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A workload is what many callers try to enter: one lock, or several.
type workload struct {
	names  []string
	lock   func(c *Client) Locker
	shared bool
	inner  func(c *Client) Locker // the lock to enter inside; nil: the same one
}

// workloads are locks of every kind, and several at once. Some share a lock.
func workloads() []workload {
	var loads []workload
	for _, name := range slices.Sorted(maps.Keys(lockKinds)) {
		if kind := lockKinds[name]; !kind.shared {
			loads = append(loads, workload{names: []string{name}, lock: func(c *Client) Locker { return kind.lock(c, name) }})
		}
	}
	return append(loads,
		workload{names: []string{"write"}, lock: func(c *Client) Locker { return c.ReadWriteLock("write").Read() }, shared: true},
		workload{
			names: []string{"write"},
			lock:  func(c *Client) Locker { return c.ReadWriteLock("write").Write() },
			inner: func(c *Client) Locker { return c.ReadWriteLock("write").Read() },
		},
		workload{names: []string{"once"}, lock: func(c *Client) Locker { return c.Once("once").WithMarker([]byte("begun"), time.Hour).asLock() }},
		workload{names: []string{"lock", "fenced"}, lock: func(c *Client) Locker { return MultiLock(c.Lock("lock"), c.FencedLock("fenced")) }},
	)
}

// Many callers of two processes share a few locks without any fault. Some leave, re-enter, extend
// and stop renewals, and every lock is renewed all the time, as it is when the clocks have parted.
// No lock has two holders, tokens rise, no lease is lost, no release fails, nothing is left, and
// every waiter is woken: none polls.
func TestLoad_NoFaults(t *testing.T) {
	t.Parallel()
	for _, mode := range []PublishMode{PublishPlain, PublishSharded, PublishBoth} {
		t.Run(fmt.Sprint("mode ", int(mode)), func(t *testing.T) {
			t.Parallel()
			fx, publish := newRedis(t), func(o *Options) { o.PublishMode = mode }
			checkCrowd(t, fx.newLocks(t, publish, asleep), fx.newLocks(t, publish, asleep))
		})
	}
}

// The same holds while connections break all the time, before and after Redis runs a script: every
// command is safe to repeat. Commands set the pace of the breaks: with a clock in their place, a
// slow machine would hardly get a command through.
func TestLoad_BrokenConnections(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	var clients []*Client
	var breaking sync.WaitGroup
	over := make(chan struct{})
	for i := range uint64(2) {
		c, proxy := fx.newProxiedLocks(t, commandTimeout(patience), asleep)
		clients = append(clients, c)
		random := rand.New(rand.NewPCG(i, 7))
		var turn sync.Mutex // of random
		oneIn := func(n int) func(args []string) bool {
			return func(args []string) bool {
				turn.Lock()
				defer turn.Unlock()
				return runsScript()(args) && random.IntN(n) == 0
			}
		}
		all, cut := oneIn(100), make(chan struct{}, 1)
		proxy.OnEvery(oneIn(30), redistest.CutBefore)
		proxy.OnEvery(oneIn(30), redistest.CutAfter)
		proxy.OnEvery(func(args []string) bool {
			if all(args) {
				select {
				case cut <- struct{}{}:
				default: // the last cut is not over
				}
			}
			return false
		}, redistest.Delay(1))
		breaking.Go(func() {
			for {
				select {
				case <-cut:
					proxy.Cut()
					proxy.Restore()
				case <-over:
					return
				}
			}
		})
	}
	checkCrowd(t, clients...)
	close(over)
	breaking.Wait()
}

// asleep makes waiters sleep until they are woken, by neither a poll nor the end of a lease.
func asleep(o *Options) { o.PollInterval, o.WatchdogTimeout = time.Hour, time.Hour }

func checkCrowd(t *testing.T, clients ...*Client) {
	loads := workloads()
	inside := make(map[string]*sync.RWMutex) // whose mutexes are free whenever they are tried
	for _, r := range loads {
		for _, name := range r.names {
			inside[name] = new(sync.RWMutex)
		}
	}
	var tokens sync.Map // by name, the last token: an *atomic.Uint64

	enter := func(r workload) (leave func()) {
		var unlock []func()
		for _, name := range r.names {
			m := inside[name]
			try, free := m.TryLock, m.Unlock
			if r.shared {
				try, free = m.TryRLock, m.RUnlock
			}
			if !try() {
				t.Errorf("%s has another holder", name)
				continue
			}
			unlock = append(unlock, free)
		}
		return func() {
			for _, free := range unlock {
				free()
			}
		}
	}
	visit := func(c *Client, r workload, random *rand.Rand) {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		opts := AcquireOptions{WaitTime: 2 * patience}
		switch random.IntN(4) {
		case 0:
			opts.WaitTime = 0
		case 1:
			defer time.AfterFunc(time.Duration(random.IntN(5000))*time.Microsecond, cancel).Stop()
		}
		if random.IntN(3) == 0 {
			opts.LeaseTime = time.Hour
		}
		check := func(what string, err error) {
			if err != nil {
				t.Errorf("%s %q: %v", what, r.names, err)
			}
		}
		l, err := r.lock(c).Acquire(ctx, opts)
		if err != nil {
			if !errors.Is(err, context.Canceled) && (opts.WaitTime > 0 || !errors.Is(err, ErrNotAcquired)) {
				check("Acquire", err)
			}
			return
		}
		leave := enter(r)
		if n, ok := l.Token(); ok {
			last, _ := tokens.LoadOrStore(l.Name(), new(atomic.Uint64))
			if last.(*atomic.Uint64).Swap(n) >= n {
				t.Errorf("token %d is not new", n)
			}
		}
		held := []*Lease{l}
		if random.IntN(4) == 0 {
			again := r.lock
			if r.inner != nil {
				again = r.inner
			}
			if inner, err := again(c).Acquire(l.Context(), AcquireOptions{}); err == nil {
				held = append(held, inner)
			} else if ctx.Err() == nil {
				check("re-enter", err)
			}
		}
		switch n := random.IntN(8); {
		case n == 0 && opts.LeaseTime > 0:
			check("Extend", l.Extend(bg, 2*time.Hour))
		case n == 1:
			l.StopRenewal()
		case n < 5:
			time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond) // its work
		}
		random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for i, l := range held {
			if r.inner != nil && i == 0 || r.inner == nil && i == len(held)-1 {
				leave() // readers may come when the writer has become one
			}
			check("the lease of", l.Err())
			check("Release", l.Release(bg))
		}
	}

	var crowd, renewing sync.WaitGroup
	over := make(chan struct{})
	for _, c := range clients {
		renewing.Go(func() {
			for tick := time.NewTicker(time.Millisecond); ; {
				select {
				case <-tick.C:
					c.dog.RenewAll()
				case <-over:
					tick.Stop()
					return
				}
			}
		})
	}
	for g := range 24 {
		crowd.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 6))
			for range 100 {
				visit(clients[g%len(clients)], loads[random.IntN(len(loads))], random)
			}
		})
	}
	crowd.Wait()
	close(over)
	renewing.Wait()
}

// Clients are closed while locks are acquired, given up, handed over and released. No release
// fails, and nothing is left in Redis when Close returns.
func TestLoad_Close(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	loads := workloads()
	for round := range uint64(60) {
		c := newUncheckedLocks(t, fx.srv.Client(t))
		var crowd sync.WaitGroup
		var granted atomic.Uint64
		enough := make(chan struct{})
		for g := range uint64(16) {
			crowd.Go(func() {
				for random := rand.New(rand.NewPCG(round, g)); ; {
					r := loads[random.IntN(len(loads))]
					ctx, cancel := context.WithTimeout(bg, time.Duration(100+random.IntN(8000))*time.Microsecond)
					l, err := r.lock(c).Acquire(ctx, forever)
					cancel()
					switch {
					case errors.Is(err, ErrClosed):
						return
					case errors.Is(err, context.DeadlineExceeded):
						continue
					case err != nil:
						t.Errorf("Acquire %q: %v", r.names, err)
						continue
					}
					if granted.Add(1) == 1+round {
						close(enough)
					}
					if random.IntN(3) == 0 {
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond) // its work
					}
					if err := errors.Join(l.Err(), l.Release(bg)); err != nil {
						t.Errorf("Release %q: %v", r.names, err)
					}
				}
			})
		}
		mustReceive(t, "one more lock than in the round before", enough)
		mustClose(t, c)
		keys := withoutTokens(fx.rdb.Keys(bg, "*").Val())
		if s := c.Stats(); len(keys) > 0 || s != (Stats{}) {
			t.Fatalf("round %d: left in Redis: %q, and in the client: %+v", round, keys, s)
		}
		crowd.Wait()
	}
	eventually(t, "the channels to go", func() bool { return len(fx.rdb.PubSubChannels(bg, "redisson*").Val()) == 0 })
}

// For a while connections break and hang, replies and messages are lost, and Redis forgets its
// scripts and freezes. No lock ever has two holders, and afterwards everything works as before.
func TestLoad_AllFaults(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const duration = 5 * time.Second
	clients := make([]*Client, 4)
	proxies := make([]*redistest.Proxy, len(clients))
	for i := range clients {
		clients[i], proxies[i] = fx.newProxiedLocksWith(t, func(o *redis.Options) {
			o.ReadTimeout, o.DialTimeout, o.PoolSize = 400*time.Millisecond, 400*time.Millisecond, 8
		}, commandTimeout(500*time.Millisecond), watchdogTimeout(1200*time.Millisecond), pollInterval(200*time.Millisecond))
	}
	names := []string{"a", "b", "c"}
	inside := make([]atomic.Pointer[Lease], len(names))
	var granted, lost atomic.Int32

	began := time.Now()
	over := func() bool { // on a slow machine it goes on until it says something
		took := time.Since(began)
		return took > duration && granted.Load() >= 20 || took > duration+patience
	}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 42))
			c := clients[g%len(clients)]
			for !over() {
				i := random.IntN(len(names))
				ctx, cancel := context.WithTimeout(bg, time.Duration(1+random.IntN(1500))*time.Millisecond)
				opts := forever
				if random.IntN(3) == 0 {
					opts.LeaseTime = time.Duration(200+random.IntN(1000)) * time.Millisecond
				}
				l, err := c.Lock(names[i]).Acquire(ctx, opts)
				if err == nil {
					granted.Add(1)
					if other := inside[i].Swap(l); other != nil && other.Err() == nil && l.Err() == nil {
						t.Errorf("two hold %s: %s and %s", names[i], holdOf(other).wire, holdOf(l).wire)
					}
					if random.IntN(2) == 0 {
						if inner, err := c.Lock(names[i]).Acquire(l.Context(), AcquireOptions{}); err == nil {
							_ = inner.Release(bg)
						}
					}
					work := time.Duration(random.IntN(20)) * time.Millisecond
					if random.IntN(8) == 0 {
						work *= 100
					}
					select {
					case <-l.Done():
						lost.Add(1)
					case <-time.After(work):
					}
					inside[i].CompareAndSwap(l, nil)
					_ = l.Release(bg) // may fail, in which case it is done in the background
				}
				cancel()
			}
		})
	}

	random := rand.New(rand.NewPCG(7, 7))
	pause := func(most time.Duration) { time.Sleep(time.Millisecond + rand.N(most)) }
	for !over() {
		p := proxies[random.IntN(len(proxies))]
		switch random.IntN(10) {
		case 0:
			p.Cut()
			pause(100 * time.Millisecond)
			p.Restore()
		case 1:
			p.Stall()
			pause(700 * time.Millisecond)
			p.Restore()
		case 2:
			p.SwallowMessages(1 + random.IntN(5))
		case 3:
			p.OnMatch(1+random.IntN(3), runsScript(), redistest.DropReply)
		case 4:
			p.OnMatch(1+random.IntN(3), runsScript(), redistest.CutAfter)
		case 5:
			p.OnMatch(1+random.IntN(3), runsScript(), redistest.CutBefore)
		case 6:
			p.OnMatch(1, runsScript(), redistest.Delay(time.Millisecond+rand.N(300*time.Millisecond)))
		case 7:
			fx.rdb.ScriptFlush(bg)
		case 8:
			fx.rdb.ClientKillByFilter(bg, "TYPE", "pubsub")
		case 9:
			fx.srv.Freeze(t)
			pause(300 * time.Millisecond)
			fx.srv.Thaw(t)
		}
		pause(100 * time.Millisecond)
	}
	wg.Wait()
	if n := granted.Load(); n < 20 {
		t.Errorf("only %d grants; this says nothing", n)
	}
	t.Logf("%d grants, %d losses", granted.Load(), lost.Load())

	// A last stray may have to be waited for.
	for i, c := range clients {
		for _, name := range names {
			eventually(t, fmt.Sprintf("client %d to get %s when all is well again", i, name), func() bool {
				l, err := c.Lock(name).Acquire(bg, AcquireOptions{WaitTime: patience})
				if err != nil {
					return false // rules that are left
				}
				_ = l.Release(bg)
				return true
			})
		}
	}
	eventually(t, "the client to be idle", func() bool {
		for _, c := range clients {
			if c.Stats() != (Stats{}) {
				return false
			}
		}
		return true
	})
	if n := fx.rdb.DBSize(bg).Val(); n != 0 {
		t.Error(fmt.Sprint("left in Redis: ", fx.rdb.Keys(bg, "*").Val()))
	}
}

// Of many callers that hardly wait one at a time gets in, the watchdog renews its lock, and nothing
// is left. Redisson: tryLockUnlockRLock, testConcurrencyTryLockUnLock.
func TestLoad_ShortWaits(t *testing.T) {
	t.Parallel()
	eachExclusiveKind(t, func(t *testing.T, lock func(*Client, string) *Lock) {
		fx := newRedis(t)
		clients := []*Client{fx.newLocks(t), fx.newLocks(t)}
		const goroutines, rounds = 16, 8
		var inside, passages atomic.Int64
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				c := clients[i%2]
				opts := AcquireOptions{}
				for done := 0; done < rounds; {
					lease, err := lock(c, "a").Acquire(bg, opts)
					if errors.Is(err, ErrNotAcquired) {
						opts.WaitTime = time.Millisecond // a refusal at once would keep the processor busy
						continue
					}
					opts.WaitTime = 0
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d are inside", n)
					}
					// A hand-over arms the watchdog before the grant, and disarms it soon if it
					// fails.
					if !within(patience, func() bool { return c.Stats().Renewals == 1 }) {
						t.Errorf("the watchdog keeps %d locks, want 1", c.Stats().Renewals)
					}
					inside.Add(-1)
					passages.Add(1)
					done++
					if err := lease.Release(bg); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
		wg.Wait()
		if n := passages.Load(); n != goroutines*rounds {
			t.Errorf("%d passages, want %d", n, goroutines*rounds)
		}
	})
}

// Many short waits for several names use one subscribing connection per client. Only refusals fail,
// and no channel is left. Redisson: testSubscriptionsPerConnection, testSinglePubSub.
func TestLoad_OneConnectionPerClient(t *testing.T) {
	t.Parallel()
	eachExclusiveKind(t, func(t *testing.T, lock func(*Client, string) *Lock) {
		fx := newRedis(t)
		clients := []*Client{fx.newLocks(t), fx.newLocks(t)}
		const goroutines, rounds = 32, 8
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				for n := range rounds {
					lease, err := lock(clients[i%2], fmt.Sprint("a", (i+n)%5)).Acquire(bg, AcquireOptions{WaitTime: 100 * time.Millisecond})
					switch {
					case err == nil:
						if err := lease.Release(bg); err != nil {
							t.Errorf("Release: %v", err)
						}
					case !errors.Is(err, ErrNotAcquired):
						t.Errorf("Acquire: %v", err)
					}
					if i == 0 {
						if n := fx.pubSubConnections(t); n > len(clients) {
							t.Errorf("%d connections listen, for %d clients", n, len(clients))
						}
					}
				}
			})
		}
		wg.Wait()
	})
}
