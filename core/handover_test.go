package core

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// handedOn are the kinds of locks that are handed over.
var handedOn = []string{"lock", "fenced", "write", "fair", "fenced-write", "fenced-fair"}

// eachHandedOn runs a test for each of these kinds. The lock is held, and a waiter of the same
// process sleeps.
func eachHandedOn(t *testing.T, test func(t *testing.T, s *handoverFixture)) {
	eachHandover(t, handedOn, test)
}

func eachHandover(t *testing.T, kinds []string, test func(t *testing.T, s *handoverFixture), options ...func(*Options)) {
	for _, name := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newHandover(t, name, time.Minute, options...))
		})
	}
}

// newHandover acquires a lock and starts a waiter for it. lease is the waiter's LeaseTime.
func newHandover(t *testing.T, kind string, lease time.Duration, options ...func(*Options)) *handoverFixture {
	s := &handoverFixture{redisFixture: newRedis(t)}
	s.c, s.proxy = s.newProxiedLocks(t, append(options, pollInterval(time.Hour))...)
	s.lock = func(c *Client) *Lock { return lockKinds[kind].lock(c, "a") }
	s.holder = mustAcquire(t, bg, s.lock(s.c), AcquireOptions{LeaseTime: time.Hour})
	ctx, leave := context.WithCancel(bg)
	t.Cleanup(leave)
	s.leave = leave
	s.waiter = acquireAsync(ctx, s.lock(s.c), AcquireOptions{WaitTime: WaitForever, LeaseTime: lease})
	eventuallyAsleep(t, s.c, "a")
	return s
}

type handoverFixture struct {
	*redisFixture
	c      *Client
	proxy  *redistest.Proxy
	lock   func(*Client) *Lock
	holder *Lease
	waiter <-chan acquireResult
	leave  func()
}

func runsHandOver() func([]string) bool {
	return runsScript(passScript, fencedPassScript, fairPassScript, fencedFairPassScript)
}

// stopOnTheWay starts the release and holds its hand-over at the proxy, as a request or as a reply.
func (s *handoverFixture) stopOnTheWay(t *testing.T, where redistest.Action) (held *redistest.Rule, released <-chan error) {
	held = s.proxy.OnMatch(1, runsHandOver(), where)
	result := make(chan error, 1)
	go func() { result <- s.holder.Release(bg) }()
	mustReceive(t, "the hand-over to reach the proxy", held.Hit())
	return held, result
}

// mustReceiveLease returns the waiter's lease.
func (s *handoverFixture) mustReceiveLease(t *testing.T) *Lease {
	t.Helper()
	got := mustReceive(t, "the waiter's lease", s.waiter)
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.lease
}

// One command hands the lock over. The lock is never free in between, and no message is published.
func TestHandOver_OneCommand(t *testing.T) {
	t.Parallel()
	eachHandedOn(t, func(t *testing.T, s *handoverFixture) {
		commands := countCommands(s.proxy, runsScript())
		held, released := s.stopOnTheWay(t, redistest.HoldReply)
		if ttl := s.pttl(t, "a"); ttl <= 30*time.Second || ttl > time.Minute {
			t.Errorf("TTL %s after the hand-over, want the minute that the waiter asked for", ttl)
		}
		wantErr(t, "another owner", tryAcquire(s.lock(s.newLocks(t))), ErrNotAcquired)
		held.Release()
		lease := s.mustReceiveLease(t)
		if err := <-released; err != nil {
			t.Errorf("Release: %v", err)
		}
		if n := commands(); n != 1 {
			t.Errorf("%d commands, want 1", n)
		}
		wantHeld(t, lease)
		mustRelease(t, lease)
	})
}

// A hand-over without a reply is retried. The waiter gets the lock once, and Release succeeds.
func TestHandOver_LostReply(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]redistest.Action{"cut before execution": redistest.CutBefore, "cut after execution": redistest.CutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachHandedOn(t, func(t *testing.T, s *handoverFixture) {
				s.proxy.OnMatch(1, runsHandOver(), action)
				mustRelease(t, s.holder)
				lease := s.mustReceiveLease(t)
				wantErr(t, "another owner", tryAcquire(s.lock(s.newLocks(t))), ErrNotAcquired)
				mustRelease(t, lease)
			})
		})
	}
}

// A retry starts the waiter's lease again. The TTL from the first try is too short by then: Redis
// could give the lock away before the lease ends here. A longer TTL stays, because only the waiter
// can have set it.
func TestHandOver_RetryCountsTheLease(t *testing.T) {
	t.Parallel()
	for name, ttl := range map[string]time.Duration{"shorter": 5 * time.Second, "longer": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachHandedOn(t, func(t *testing.T, s *handoverFixture) {
				_, released := s.stopOnTheWay(t, redistest.HoldReply)
				s.rdb.PExpire(bg, "a", ttl) // as if time had passed, or the waiter had extended
				s.proxy.Cut()
				s.proxy.Restore()
				lease := s.mustReceiveLease(t)
				if err := mustReceive(t, "Release to return", released); err != nil {
					t.Errorf("Release: %v", err)
				}
				if left := s.pttl(t, "a"); left < lease.Remaining() || ttl == time.Hour && left < ttl-patience {
					t.Errorf("TTL %s, lease %s, want the TTL to outlast the lease and an extension to stay", left, lease.Remaining())
				}
				mustRelease(t, lease)
			})
		})
	}
}

// If the lock was lost, Release returns ErrLockLost, and the waiter tries for itself.
func TestHandOver_LockWasLost(t *testing.T) {
	t.Parallel()
	eachHandedOn(t, func(t *testing.T, s *handoverFixture) {
		s.deleteKeys(t, "a")
		wantErr(t, "Release", s.holder.Release(bg), ErrLockLost)
		mustRelease(t, s.mustReceiveLease(t))
	})
}

// A waiter that leaves during the hand-over leaves no lock behind: the next waiter gets it.
func TestHandOver_WaiterHasLeft(t *testing.T) {
	t.Parallel()
	eachHandedOn(t, func(t *testing.T, s *handoverFixture) {
		held, released := s.stopOnTheWay(t, redistest.HoldReply)
		s.leave()
		wantErr(t, "the waiter", mustReceive(t, "the waiter to leave", s.waiter).err, context.Canceled)
		next := acquireAsync(bg, s.lock(s.c), AcquireOptions{WaitTime: WaitForever})
		held.Release()
		if err := mustReceive(t, "Release to return", released); err != nil {
			t.Errorf("Release: %v", err)
		}
		got := mustReceive(t, "the next waiter's lease", next)
		if got.err != nil {
			t.Fatal(got.err)
		}
		mustRelease(t, got.lease)
	})
}

// The outcome of a hand-over stays unknown. Holder and waiter both get the error, and the cleaner
// frees the lock for either.
func TestHandOver_OutcomeStaysUnknown(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]redistest.Action{"not executed": redistest.CutBefore, "executed": redistest.CutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t, commandTimeout(3*time.Second), pollInterval(never))
			holder := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
			waiter := acquireAsync(bg, c.Lock("a"), long)
			eventuallyAsleep(t, c, "a")
			proxy.OnMatch(1, runsHandOver(), action)
			proxy.OnEvery(runsHandOver(), redistest.CutBefore)
			if err := holder.Release(bg); err == nil || errors.Is(err, ErrNotHeld) {
				t.Errorf("Release: %v, want the error of Redis", err)
			}
			if err := mustReceive(t, "the waiter to fail", waiter).err; err == nil {
				t.Error("the waiter got the lock")
			}
			mustRelease(t, mustAcquire(t, bg, fx.newLocks(t).Lock("a"), AcquireOptions{WaitTime: patience}))
		})
	}
}

// Two processes that always have waiters share a lock.
func TestHandOver_TwoProcessesShare(t *testing.T) {
	t.Parallel()
	for _, name := range handedOn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			clients := []*Client{fx.newLocks(t), fx.newLocks(t)}
			var turns [2]atomic.Int64
			ctx, stop := context.WithTimeout(bg, patience*3)
			defer stop()
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					for ctx.Err() == nil {
						lease, err := lockKinds[name].lock(clients[i%2], "a").Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
						if err != nil {
							return
						}
						turns[i%2].Add(1)
						if err := lease.Release(bg); err != nil {
							t.Errorf("Release: %v", err)
						}
						if min(turns[0].Load(), turns[1].Load()) >= 5*streakMoves {
							stop()
						}
					}
				})
			}
			wg.Wait()
			one, two := turns[0].Load(), turns[1].Load()
			if min(one, two) < 5*streakMoves || max(one, two) > 8*min(one, two) {
				t.Errorf("%d and %d turns, want an even share", one, two)
			}
		})
	}
}

// One process always hears of releases later than the other. From its first turn on it still gets
// its share: after a streak, a process lets the other have one before it tries again.
func TestHandOver_SlowerProcessGetsAsMuch(t *testing.T) {
	t.Parallel()
	for _, name := range tiring {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			quick := fx.newLocksOn(t, fx.srv.Client(t))
			slow := fx.newLocksOn(t, fx.srv.ClientWith(t, hardOfHearing))
			// Long enough for any machine, so that its speed does not decide the turns.
			quick.pauses.firstChance, slow.pauses.firstChance = patience, patience

			ctx, stop := context.WithTimeout(bg, 3*patience)
			defer stop()
			const enough = 20 * streakMoves
			var wg sync.WaitGroup
			var mu sync.Mutex
			turns, noticed := map[*Client]int{}, false
			count := func(c *Client) {
				mu.Lock()
				defer mu.Unlock()
				if !noticed && c == slow {
					noticed = true
					clear(turns)
				}
				if turns[c]++; noticed && turns[quick]+turns[slow] >= enough {
					stop()
				}
			}
			for i := range 16 {
				c := []*Client{slow, quick}[i%2]
				wg.Go(func() {
					for ctx.Err() == nil {
						lease, err := lockKinds[name].lock(c, "a").Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
						if err != nil {
							return
						}
						count(c)
						if err := lease.Release(bg); err != nil {
							t.Errorf("Release: %v", err)
						}
					}
				})
			}
			wg.Wait()
			if one, two := turns[quick], turns[slow]; one+two < enough || min(one, two)*100 < (one+two)*35 {
				t.Errorf("%d turns of the quick process, %d of the slow one (had a turn: %t), want 35%% each at least", one, two, noticed)
			}
		})
	}
}

// hardOfHearing delays everything that arrives on a pub/sub connection by 5 ms.
func hardOfHearing(o *redis.Options) {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		return &lateConn{Conn: conn}, err
	}
}

type lateConn struct {
	net.Conn
	late atomic.Bool
}

func (c *lateConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("\r\nsubscribe\r\n")) {
		c.late.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.late.Load() {
		<-time.After(5 * time.Millisecond)
	}
	return n, err
}

// tiring are the kinds whose streaks of hand-overs end.
var tiring = []string{"lock", "fenced", "write"}

// tire uses up the streak of a lock.
func tire(c *Client, name string) {
	e := c.names.open(name, false)
	defer e.close()
	for range streakMoves {
		e.queue.HandedOver(clock.Now())
	}
}

// streakMoves is how many hand-overs end a streak.
const streakMoves = 64

// eachTired is eachHandedOn for the tiring kinds, in both publish modes. After a streak the client
// gives other processes all the time they may need.
func eachTired(t *testing.T, test func(t *testing.T, s *handoverFixture)) {
	for mode, publish := range map[string]PublishMode{"plain": PublishPlain, "sharded": PublishSharded} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			eachHandover(t, tiring, func(t *testing.T, s *handoverFixture) {
				s.c.pauses.firstChance = patience
				test(t, s)
			}, func(o *Options) { o.PublishMode = publish })
		})
	}
}

// another returns a client that stands for another process.
func (s *handoverFixture) another(t *testing.T) *Client {
	return s.newLocks(t, pollInterval(time.Hour), func(o *Options) { o.PublishMode = s.c.opts.PublishMode })
}

// If no other process listens, the waiters here go on after a streak without a rest.
func TestHandOver_GoesOnWithoutOtherListeners(t *testing.T) {
	t.Parallel()
	eachTired(t, func(t *testing.T, s *handoverFixture) {
		tire(s.c, "a")
		handed, frees := countCommands(s.proxy, runsHandOver()), countCommands(s.proxy, runsScript(releaseScript, readWriteUpdateScript))
		mustRelease(t, s.holder)
		lease := s.mustReceiveLease(t) // without a rest of firstChance
		if handed() != 0 || frees() != 1 {
			t.Errorf("%d hand-overs and %d plain releases, want only one plain release", handed(), frees())
		}
		mustRelease(t, lease)
	})
}

// If another process listens, it gets the lock next, even if this process has not noticed it yet.
func TestHandOver_EndsWhereOthersListen(t *testing.T) {
	t.Parallel()
	eachTired(t, func(t *testing.T, s *handoverFixture) {
		other := s.another(t)
		stranger := acquireAsync(bg, s.lock(other), AcquireOptions{WaitTime: WaitForever})
		eventuallyAsleep(t, other, "a")
		tire(s.c, "a")
		mustRelease(t, s.holder)
		got := mustReceive(t, "the lease of the other process", stranger)
		if got.err != nil {
			t.Fatal(got.err)
		}
		select {
		case r := <-s.waiter:
			t.Fatalf("the waiter here returned too: %+v", r)
		default:
		}
		mustRelease(t, got.lease)
		mustRelease(t, s.mustReceiveLease(t))
	})
}

// A stream of acquisitions in one process costs little more than one command each.
func TestHandOver_CommandsPerAcquisition(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	commands := countCommands(proxy, runsScript())
	const callers, rounds = 8, 50
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				lease, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: patience * 3})
				if err == nil {
					err = lease.Release(bg)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// On a busy machine every streak may be short. Without hand-overs it would be two commands each.
	if n := commands(); n > callers*rounds*17/10 {
		t.Errorf("%d commands for %d acquisitions, want at most 1.7 each", n, callers*rounds)
	}
}

// While Close waits for a holder, its release frees the lock instead of handing it over.
func TestHandOver_NotWhileClosing(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	holder := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
	waiter := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "a waiter that has subscribed", func() bool { return c.Stats().Waiting == 1 && c.Stats().Channels == 1 })
	handed := countCommands(proxy, runsHandOver())
	closed := make(chan error, 1)
	go func() { closed <- c.Close(bg) }()
	wantErr(t, "the waiter", mustReceive(t, "the waiter to fail", waiter).err, ErrClosed)
	mustRelease(t, holder)
	if err := mustReceive(t, "Close to return", closed); err != nil {
		t.Error(err)
	}
	if n := handed(); n != 0 {
		t.Errorf("%d hand-overs while closing, want none", n)
	}
}

// A waiter for another kind needs another script: a fenced lock draws a token, and a reader has a
// time-out key.
func TestHandOver_NotToAnotherKind(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string]struct {
		held, wanted func(c *Client, name string) *Lock
	}{
		"a fenced lock behind a plain one":   {(*Client).Lock, (*Client).FencedLock},
		"a plain lock behind a fenced one":   {(*Client).FencedLock, (*Client).Lock},
		"a fenced writer behind a plain one": {writeSide, fencedWriteSide},
		"a plain writer behind a fenced one": {fencedWriteSide, writeSide},
		"a reader behind a writer":           {writeSide, readSide},
		"a reader behind a fenced writer":    {fencedWriteSide, readSide},
		"a writer behind a reader":           {readSide, writeSide},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c, proxy := fx.newProxiedLocks(t)
			holder := mustAcquire(t, bg, kinds.held(c, "a"), AcquireOptions{})
			wanted := kinds.wanted(c, "a")
			waiter := acquireAsync(bg, wanted, AcquireOptions{WaitTime: patience})
			eventually(t, "the waiter to sleep", func() bool { return sleepingWaiters(c, "a") == 1 })
			handed := countCommands(proxy, runsHandOver())
			mustRelease(t, holder)
			lease := mustReceiveLease(t, "the waiter", waiter)
			if n := handed(); n != 0 {
				t.Errorf("handed on %d times, to a waiter for another kind", n)
			}
			if _, ok := lease.Token(); ok != wanted.kind.Fenced() {
				t.Errorf("has a token: %v", ok)
			}
			mustRelease(t, lease)
			if keys := fx.rdb.Keys(bg, "a*").Val(); len(keys) > 0 {
				t.Errorf("left: %q", keys)
			}
		})
	}
}

// A hold is lost during its hand-over. The waiter wakes up and tries for itself.
func TestHandOver_LostOnTheWay(t *testing.T) {
	t.Parallel()
	eachHandedOn(t, func(t *testing.T, s *handoverFixture) {
		held, released := s.stopOnTheWay(t, redistest.HoldRequest)
		s.deleteKeys(t, "a")
		holdOf(s.holder).lose(ErrLockLost)
		held.Release()
		wantErr(t, "Release", mustReceive(t, "Release to return", released), ErrLockLost)
		mustRelease(t, s.mustReceiveLease(t))
	})
}

// Redis does not have the waiter's hold until it executes the hand-over. A renewal sent before that
// leaves the hold out: Redis would report it gone, and a lease that has just begun would be lost.
func TestHandOver_NotRenewedBeforeItIsThere(t *testing.T) {
	t.Parallel()
	for _, kind := range handedOn {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newHandover(t, kind, 0)
			another := mustAcquire(t, bg, s.c.Lock("b"), AcquireOptions{})
			held, released := s.stopOnTheWay(t, redistest.HoldRequest)
			renewal := s.proxy.OnMatch(1, runsScript(renewScript), redistest.HoldReply)
			s.c.dog.RenewAll()
			mustReceive(t, "a renewal", renewal.Hit())
			held.Release()
			lease := s.mustReceiveLease(t)
			if err := mustReceive(t, "Release to return", released); err != nil {
				t.Errorf("Release: %v", err)
			}
			renewal.Release()
			mustBeRenewed(t, another)
			wantHeld(t, lease)
			s.c.dog.RenewAll()
			mustBeRenewed(t, lease)
			mustRelease(t, lease)
			mustRelease(t, another)
		})
	}
}

// A fair lock is handed over only to the head of the queue in Redis. If the head is in another
// process, the release frees the lock and notifies the head.
func TestHandOver_FairGoesToTheFirst(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, other := fx.newLocks(t, pollInterval(never)), fx.newLocks(t, pollInterval(never))
	holder := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{})
	queued := func(n int64) {
		eventually(t, "the waiter to queue in Redis", func() bool { return fx.rdb.LLen(bg, wire.FairQueue("a")).Val() == n })
	}
	first := acquireAsync(bg, other.FairLock("a"), AcquireOptions{WaitTime: WaitForever})
	queued(1)
	here := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever})
	queued(2)
	eventuallyAsleep(t, c, "a")
	mustRelease(t, holder)
	got := mustReceive(t, "the first waiter's lease", first)
	if got.err != nil {
		t.Fatal(got.err)
	}
	select {
	case r := <-here:
		t.Fatalf("the second waiter returned too: %+v", r)
	default:
	}
	mustRelease(t, got.lease)
	second := mustReceive(t, "the second waiter's lease", here)
	if second.err != nil {
		t.Fatal(second.err)
	}
	mustRelease(t, second.lease)
}

// Redis refuses a hand-over, for instance while a slot migration splits the keys of the lock. The
// release becomes a plain one: it succeeds at once, and the waiter tries for itself.
func TestRelease_HandOverThatCannotBeDone(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "-CLUSTERDOWN The cluster is down\r\n"} {
		for name, kind := range allKinds {
			if kind.pass == nil {
				continue
			}
			t.Run(name+" "+reply[1:5], func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				c, proxy := fx.newProxiedLocks(t, pollInterval(never))
				lease := mustAcquire(t, bg, kind.lock(c, "a"), AcquireOptions{})
				waiter := acquireAsync(bg, kind.lock(c, "a"), AcquireOptions{WaitTime: patience})
				eventuallyAsleep(t, c, "a")
				tries := countCommands(proxy, runsScript(kind.pass))
				proxy.OnEvery(runsScript(kind.pass), redistest.ReplyWith(reply))
				mustRelease(t, lease)
				mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
				if n := tries(); n != 1 {
					t.Errorf("%d tries of a hand-over that Redis refuses, want 1", n)
				}
			})
		}
	}
}

// fill makes Redis refuse every command that may need memory, until the test ends.
func (fx *redisFixture) fill(t testing.TB) {
	t.Helper()
	fx.loadScripts(t)
	set := func(maxmemory string) {
		if err := fx.rdb.ConfigSet(bg, "maxmemory", maxmemory).Err(); err != nil {
			t.Error(err)
		}
	}
	set("1")
	t.Cleanup(func() { set("0") })
}

// On a full Redis, a holder can still hand over, extend, release one level and renew.
func TestHold_OnAFullRedis(t *testing.T) {
	t.Parallel()
	for name, kind := range allKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t, watchdogTimeout(3*time.Second))
			lock := kind.lock(c, "a")
			outer := mustAcquire(t, bg, lock, AcquireOptions{})
			inner := mustAcquire(t, outer.Context(), lock, AcquireOptions{LeaseTime: time.Minute})
			var waiter <-chan acquireResult
			if kind.pass != nil {
				waiter = acquireAsync(bg, lock, AcquireOptions{WaitTime: patience})
				eventually(t, "the waiter to sleep", func() bool { return sleepingWaiters(c, "a") == 1 })
			}
			fx.fill(t)
			if err := inner.Extend(bg, time.Hour); err != nil {
				t.Errorf("Extend: %v", err)
			}
			fx.wantPTTL(t, "a", time.Hour)
			mustRelease(t, inner)
			if name == "read" { // an evicted timeout key comes back
				timeout := wire.ReadTimeout("a", holdOf(outer).wire, 1)
				fx.rdb.Del(bg, timeout)
				eventually(t, "the timeout key to come back", func() bool { return fx.pttl(t, timeout) > 0 })
			} else {
				mustBeRenewed(t, outer)
			}
			mustRelease(t, outer)
			if waiter != nil {
				mustRelease(t, mustReceiveLease(t, "the waiter's lease", waiter))
			}
		})
	}
}

// On a full Redis, a waiter can still leave the queue of a fair lock. The waiters behind it stay.
func TestFair_LeavesTheQueueOfAFullRedis(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	holder := mustAcquire(t, bg, c.FairLock("a"), AcquireOptions{})
	ctx, leave := context.WithCancel(bg)
	leaving := fx.queueWaitersWith(t, ctx, c)[0]
	results := fx.queueWaiters(t, c, c)
	fx.fill(t)
	leave()
	wantErr(t, "the first waiter", mustReceive(t, "the first waiter to leave", leaving).err, ErrStillHeld)
	fx.eventuallyQueued(t, "a", 2)
	if n := fx.rdb.ZCard(bg, wire.FairDeadlines("a")).Val(); n != 2 {
		t.Errorf("%d deadlines, want 2", n)
	}
	mustRelease(t, holder)
	for _, r := range results {
		mustRelease(t, mustReceiveLease(t, "the lease of a waiter behind it", r))
	}
}

// The hold and the waiter end up as the table in docs/inside/engine-states.md says.
func TestHandOver_EveryOutcome(t *testing.T) {
	t.Parallel()
	down := errors.New("no reply")
	type heir int
	const (
		holds heir = iota // gets the lock
		fails             // returns an error
		waits
		gone
	)
	for _, row := range []struct {
		name     string
		reply    claim.HandOverReply
		stray    bool
		err      error // of the command
		unproven error
		meantime func(s *outcomeFixture, t *testing.T) // before the reply is read
		late     time.Duration                         // how late the reply is read

		freed    bool
		release  error // what Release returns
		heir     heir
		acquire  error // what Acquire returns if it fails
		cleanups int   // if the kind has no queue in Redis
		kept     int   // if it has one: the heir frees its own place
	}{
		{name: "handed over", reply: claim.HandedOver, freed: true, heir: holds},
		{name: "handed over by a retry", reply: claim.HandedOver, stray: true, freed: true, heir: holds},
		{name: "handed over late", reply: claim.HandedOver, late: time.Hour, freed: true, heir: fails, acquire: claim.ErrLate, cleanups: 1},
		{name: "handed over and forced", reply: claim.HandedOver, meantime: (*outcomeFixture).forceUnlock, freed: true, heir: fails, acquire: claim.ErrForced, cleanups: 1},
		{name: "handed over without replicas", reply: claim.HandedOver, unproven: ErrNotReplicated, freed: true, heir: fails, acquire: ErrNotReplicated, cleanups: 1},
		{name: "handed over to a waiter that left", reply: claim.HandedOver, meantime: (*outcomeFixture).waiterLeaves, freed: true, heir: gone, cleanups: 1, kept: 1},
		{name: "handed over by a hold that is lost", reply: claim.HandedOver, meantime: (*outcomeFixture).loseLock, freed: true, release: ErrLockLost, heir: holds, cleanups: 1, kept: 1},
		{name: "freed instead", reply: claim.FreedInstead, freed: true, heir: waits},
		{name: "not held", reply: claim.NotHeld, freed: true, release: ErrLockLost, heir: waits},
		{name: "not held after a retry", reply: claim.NotHeld, stray: true, freed: true, heir: waits, cleanups: 1},
		{name: "not executed", reply: claim.NotExecuted, err: down, heir: waits},
		{name: "unknown", reply: claim.Unknown, stray: true, err: down, freed: true, release: down, heir: fails, acquire: down, cleanups: 2, kept: 1},
		{name: "unknown, and the waiter left", reply: claim.Unknown, stray: true, err: down, meantime: (*outcomeFixture).waiterLeaves, freed: true, release: down, heir: gone, cleanups: 2, kept: 2},
	} {
		for _, kind := range handedOn {
			t.Run(row.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newOutcomeFixture(t, kind)
				if row.stray {
					s.o.op.Unreadable()
				}
				s.o.reply, s.o.err, s.o.unproven = row.reply, row.err, row.unproven
				if row.meantime != nil {
					row.meantime(s, t)
				}
				at := s.c.clock().Add(row.late)
				freed, err := s.o.settle(at)
				if freed != row.freed || !errors.Is(err, row.release) {
					t.Errorf("settle: freed %v, error %v, want %v and %v", freed, err, row.freed, row.release)
				}
				cleanups := row.cleanups
				if strings.HasSuffix(kind, "fair") {
					cleanups = row.kept
				}
				// An heir that fails frees its place in Redis at some time from now on.
				fewest, most := cleanups, cleanups
				if row.heir == fails && strings.HasSuffix(kind, "fair") {
					most++
				}
				if n := s.cleanups(); n < fewest || n > most {
					t.Errorf("%d clean-ups, want %d to %d", n, fewest, most)
				}
				switch row.heir {
				case holds, fails:
					got := mustReceive(t, "the heir to return", s.waiter)
					if (got.lease != nil) != (row.heir == holds) || !errors.Is(got.err, row.acquire) {
						t.Errorf("Acquire of the heir: %v, %v, want the error %v", got.lease, got.err, row.acquire)
					}
				case waits:
					if n := s.c.Stats().Waiting; n != 1 {
						t.Errorf("%d waiters, want 1", n)
					}
				}
			})
		}
	}
}

// An outcomeFixture is a hand-over whose command is never sent. The test sets its outcome.
type outcomeFixture struct {
	*handoverFixture
	o *handover
}

func newOutcomeFixture(t *testing.T, kind string) *outcomeFixture {
	fx := newRedis(t)
	c := newUncheckedLocks(t, fx.srv.Client(t), pollInterval(time.Hour))
	s := &handoverFixture{redisFixture: fx, c: c, lock: func(c *Client) *Lock { return lockKinds[kind].lock(c, "a") }}
	s.holder = mustAcquire(t, bg, s.lock(c), AcquireOptions{LeaseTime: time.Minute})
	stopVerifying(t, c) // Redis does not have what the test says that the heir was handed
	ctx, leave := context.WithCancel(bg)
	s.leave = leave
	s.waiter = acquireAsync(ctx, s.lock(c), AcquireOptions{WaitTime: time.Hour, LeaseTime: time.Minute})
	eventuallyAsleep(t, c, "a") // otherwise it would try once more
	eventually(t, "the waiter to sleep", func() bool { return sleepingWaiters(c, "a") == 1 })
	c.cleaner.schedule.Close() // clean-ups stay pending, so that the test can count them
	h := holdOf(s.holder)
	t.Cleanup(func() {
		leave()
		h.lose(ErrLockLost) // a hold that was not freed is still in its release
		own := h.turn()
		own.pass()
		ended, cancel := context.WithCancel(bg)
		cancel()
		_ = c.Close(ended)
		fx.rdb.FlushAll(bg)
	})

	e := h.entry
	op := c.ops.Op(lua.Holders("a"), patience)
	if _, err := op.Run(redisop.Until{}); err != nil {
		t.Fatal(err)
	}
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	h.claim.Turn.Take()
	last := s.holder.backend.(*level)
	last.err = ErrReleased
	h.dropLocked(last)
	o := h.planReleaseLocked(last).handover
	if o == nil {
		t.Fatal("no hand-over was prepared")
	}
	o.op = op
	return &outcomeFixture{s, o}
}

func (s *outcomeFixture) cleanups() int { return s.c.cleaner.len() }

func (s *outcomeFixture) waiterLeaves(t *testing.T) {
	s.leave()
	if got := mustReceive(t, "the waiter to leave", s.waiter); got.err == nil {
		t.Fatal("the waiter got the lock")
	}
	for u := range s.c.cleaner.pending { // of the place that a fair waiter left
		delete(s.c.cleaner.pending, u)
	}
}

func (s *outcomeFixture) forceUnlock(*testing.T) {
	s.o.hold.entry.shard.mu.Lock()
	defer s.o.hold.entry.shard.mu.Unlock()
	s.o.heir.pending, s.o.heir.forced = 0, true
}

func (s *outcomeFixture) loseLock(*testing.T) { s.o.hold.lose(ErrLockLost) }

// A waiter may leave at the moment it is handed the lock. It was not kept out by itself.
func TestHandOver_ToOneThatLeaves(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c := fx.newLocks(t)
	given := 0
	for range 1000 {
		lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{WaitTime: patience}) // what was handed over is released in the background
		ctx, leave := context.WithCancel(WithOwner(bg))
		waiting := acquireAsync(ctx, c.Lock("a"), forever)
		eventually(t, "the waiter to sleep", func() bool { return sleepingWaiters(c, "a") == 1 })
		released := make(chan error, 1)
		go func() { released <- lease.Release(bg) }()
		time.Sleep(rand.N(time.Millisecond)) // about as long as a release takes
		leave()
		got := mustReceive(t, "the waiter to leave", waiting)
		if err := <-released; err != nil {
			t.Fatal(err)
		}
		if got.err == nil {
			mustRelease(t, got.lease)
		} else if given++; strings.Contains(got.err.Error(), "same request") {
			t.Fatalf("it says: %v", got.err)
		}
	}
	t.Logf("%d of 1000 have left without the lock", given)
}
