package core

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redistest"
)

// handedOn are the kinds that are handed on.
var handedOn = []string{"lock", "fenced", "write", "fair"}

// eachHandedOn runs a test for every kind that is handed on, with a lock that is held and another caller of the same process
// that waits for it, asleep.
func eachHandedOn(t *testing.T, test func(t *testing.T, s *handoverSite)) {
	eachHandover(t, handedOn, test)
}

func eachHandover(t *testing.T, kinds []string, test func(t *testing.T, s *handoverSite), options ...func(*Options)) {
	for _, name := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newHandover(t, name, time.Minute, options...))
		})
	}
}

// newHandover has a lock of a kind held, and waited for by a caller that wants it for a time, or 0.
func newHandover(t *testing.T, kind string, lease time.Duration, options ...func(*Options)) *handoverSite {
	s := &handoverSite{bundle: newBundle(t)}
	s.c, s.proxy = s.proxied(t, append(options, pollInterval(time.Hour))...)
	s.lock = func(c *Client) *Lock { return lockKinds[kind].lock(c, "a") }
	s.holder = mustTake(t, bg, s.lock(s.c), AcquireOptions{LeaseTime: time.Hour})
	ctx, leave := context.WithCancel(bg)
	t.Cleanup(leave)
	s.leave = leave
	s.waiter = acquireAsync(ctx, s.lock(s.c), AcquireOptions{WaitTime: WaitForever, LeaseTime: lease})
	listened(t, s.c, "a")
	return s
}

type handoverSite struct {
	*bundle
	c      *Client
	proxy  *redistest.Proxy
	lock   func(*Client) *Lock
	holder *Lease
	waiter <-chan acquired
	leave  func()
}

func passes() func([]string) bool { return runs(passScript, fencedPassScript, fairPassScript) }

// stopOnTheWay begins the release, and has the proxy stop the hand-over: as a request, or when Redis has done it.
func (s *handoverSite) stopOnTheWay(t *testing.T, where redistest.Action) (held *redistest.Rule, released <-chan error) {
	held = s.proxy.OnMatch(1, passes(), where)
	result := make(chan error, 1)
	go func() { result <- s.holder.Release(bg) }()
	await(t, "the hand-over is on its way", held.Hit())
	return held, result
}

// mustGet is the waiter's lease.
func (s *handoverSite) mustGet(t *testing.T) *Lease {
	t.Helper()
	got := await(t, "the waiter gets it", s.waiter)
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.lease
}

// One command hands it on; nobody finds the lock free, and nothing is published.
func TestHandOver_OneCommand(t *testing.T) {
	t.Parallel()
	eachHandedOn(t, func(t *testing.T, s *handoverSite) {
		commands := counter(s.proxy, runs())
		held, released := s.stopOnTheWay(t, redistest.HoldReply)
		if ttl := s.pttl(t, "a"); ttl <= 30*time.Second || ttl > time.Minute {
			t.Errorf("the new owner's lease is a minute, the lock lives for %s", ttl)
		}
		wantErr(t, "a stranger", second(s.lock(s.client(t))), ErrNotAcquired)
		held.Release()
		lease := s.mustGet(t)
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

// A release whose reply is lost is repeated as it was: the waiter has the lock once, and the holder has given it back.
func TestHandOver_LostReply(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]redistest.Action{"before": redistest.CutBefore, "after": redistest.CutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachHandedOn(t, func(t *testing.T, s *handoverSite) {
				s.proxy.OnMatch(1, passes(), action)
				mustRelease(t, s.holder)
				lease := s.mustGet(t)
				wantErr(t, "a stranger", second(s.lock(s.client(t))), ErrNotAcquired)
				mustRelease(t, lease)
			})
		})
	}
}

// The lease of the waiter is counted from the repeat: what is left of the first try's by then is too short, and somebody else
// would have the lock before it is over here. A longer one, which only the waiter itself can have asked for, stays.
func TestHandOver_RetryCountsTheLease(t *testing.T) {
	t.Parallel()
	for name, ttl := range map[string]time.Duration{"shorter": 5 * time.Second, "longer": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachHandedOn(t, func(t *testing.T, s *handoverSite) {
				_, released := s.stopOnTheWay(t, redistest.HoldReply)
				s.rdb.PExpire(bg, "a", ttl) // as if time had passed, or it had been prolonged
				s.proxy.Cut()
				s.proxy.Restore()
				lease := s.mustGet(t)
				if err := await(t, "Release", released); err != nil {
					t.Errorf("Release: %v", err)
				}
				if left := s.pttl(t, "a"); left < lease.Remaining() || ttl == time.Hour && left < ttl-patience {
					t.Errorf("the lock lives for %s, the lease for %s", left, lease.Remaining())
				}
				mustRelease(t, lease)
			})
		})
	}
}

// Where the lock was lost before, the release says so, and the waiter asks as if nobody had handed it anything.
func TestHandOver_LockWasLost(t *testing.T) {
	t.Parallel()
	eachHandedOn(t, func(t *testing.T, s *handoverSite) {
		s.free(t, "a")
		wantErr(t, "Release", s.holder.Release(bg), ErrLockLost)
		mustRelease(t, s.mustGet(t))
	})
}

// A waiter that leaves while the lock is on its way to it leaves no lock behind.
func TestHandOver_WaiterHasLeft(t *testing.T) {
	t.Parallel()
	eachHandedOn(t, func(t *testing.T, s *handoverSite) {
		held, released := s.stopOnTheWay(t, redistest.HoldReply)
		s.leave()
		wantErr(t, "the waiter", await(t, "it leaves", s.waiter).err, context.Canceled)
		next := acquireAsync(bg, s.lock(s.c), AcquireOptions{WaitTime: WaitForever})
		held.Release()
		if err := await(t, "Release", released); err != nil {
			t.Errorf("Release: %v", err)
		}
		got := await(t, "whoever comes next gets it", next)
		if got.err != nil {
			t.Fatal(got.err)
		}
		mustRelease(t, got.lease)
	})
}

// Whether the lock was handed on is never heard of: the error goes to both, and what is there is freed, whose ever it is.
func TestHandOver_OutcomeStaysUnknown(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]redistest.Action{"not done": redistest.CutBefore, "done": redistest.CutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t, commandTimeout(3*time.Second), pollInterval(never))
			holder := mustAcquire(t, c, "a", AcquireOptions{})
			waiter := acquireAsync(bg, c.Lock("a"), long)
			listened(t, c, "a")
			proxy.OnMatch(1, passes(), action)
			proxy.OnEvery(passes(), redistest.CutBefore)
			if err := holder.Release(bg); err == nil || errors.Is(err, ErrNotHeld) {
				t.Errorf("Release: %v, want that Redis did not answer", err)
			}
			if err := await(t, "the waiter fails with it", waiter).err; err == nil {
				t.Error("the waiter got it")
			}
			mustRelease(t, mustAcquire(t, b.client(t), "a", AcquireOptions{WaitTime: patience}))
		})
	}
}

// Two processes share a lock that both want all the time.
func TestHandOver_TwoProcessesShare(t *testing.T) {
	t.Parallel()
	for _, name := range handedOn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			clients := []*Client{b.client(t), b.client(t)}
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
				t.Errorf("%d and %d turns", one, two)
			}
		})
	}
}

// Of two processes, one hears of a release later than the other, always. It gets as much of the lock all the same, once it has
// been noticed: who has had a streak asks again when the other has had one, not as soon as it can.
func TestHandOver_SlowerProcessGetsAsMuch(t *testing.T) {
	t.Parallel()
	for _, name := range tiring {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			quick := b.clientOn(t, b.srv.Client(t))
			slow := b.clientOn(t, b.srv.ClientWith(t, hardOfHearing))
			quick.firstChance, slow.firstChance = patience, patience // whose turn it is does not depend on how slow the machine is

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
				t.Errorf("%d turns of the quick one, %d of the slow one, noticed: %t", one, two, noticed)
			}
		})
	}
}

// hardOfHearing has whatever comes on a connection that has subscribed to something arrive 5 ms late.
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

// tiring are the kinds that are not handed on for ever.
var tiring = []string{"lock", "fenced", "write"}

// tire ends the streak of a lock.
func tire(c *Client, name string) {
	e := c.names.lock(name)
	defer e.unlock()
	for range streakMoves {
		e.queue.HandedOn(clock.Now())
	}
}

// streakMoves is after how many hand-overs a streak ends.
const streakMoves = 64

// eachTired is eachHandedOn for the kinds that get tired, with both ways to publish, and a client that leaves a freed lock to
// others for as long as they may need.
func eachTired(t *testing.T, test func(t *testing.T, s *handoverSite)) {
	for mode, publish := range map[string]PublishMode{"plain": PublishPlain, "sharded": PublishSharded} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			eachHandover(t, tiring, func(t *testing.T, s *handoverSite) {
				s.c.firstChance = patience
				test(t, s)
			}, func(o *Options) { o.PublishMode = publish })
		})
	}
}

// another is a client of another process.
func (s *handoverSite) another(t *testing.T) *Client {
	return s.client(t, pollInterval(time.Hour), func(o *Options) { o.PublishMode = s.c.opts.PublishMode })
}

// Where no other process listens, the waiters here go on after a streak without a rest.
func TestHandOver_GoesOnWithoutOtherListeners(t *testing.T) {
	t.Parallel()
	eachTired(t, func(t *testing.T, s *handoverSite) {
		tire(s.c, "a")
		handed, frees := counter(s.proxy, passes()), counter(s.proxy, runs(releaseScript, readWriteUpdateScript))
		mustRelease(t, s.holder)
		lease := s.mustGet(t) // firstChance is far longer than this waits
		if handed() != 0 || frees() != 1 {
			t.Errorf("handed over %d times and freed %d times, want it freed once", handed(), frees())
		}
		mustRelease(t, lease)
	})
}

// Others who listen have the lock next, although this process has not noticed them before.
func TestHandOver_EndsWhereOthersListen(t *testing.T) {
	t.Parallel()
	eachTired(t, func(t *testing.T, s *handoverSite) {
		other := s.another(t)
		stranger := acquireAsync(bg, s.lock(other), AcquireOptions{WaitTime: WaitForever})
		listened(t, other, "a")
		tire(s.c, "a")
		mustRelease(t, s.holder)
		got := await(t, "the other process has its turn", stranger)
		if got.err != nil {
			t.Fatal(got.err)
		}
		select {
		case r := <-s.waiter:
			t.Fatalf("the waiter has it as well: %+v", r)
		default:
		}
		mustRelease(t, got.lease)
		mustRelease(t, s.mustGet(t))
	})
}

// A stream of acquisitions of one process costs hardly more than a command each.
func TestHandOver_CommandsPerAcquisition(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	commands := counter(proxy, runs())
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
	// On a machine that is hardly ever given to us every streak may be short; two commands each would be without any.
	if n := commands(); n > callers*rounds*17/10 {
		t.Errorf("%d commands for %d acquisitions", n, callers*rounds)
	}
}

// Closing: what is held is waited for, and not handed on meanwhile.
func TestHandOver_NotWhileClosing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	holder := mustAcquire(t, c, "a", AcquireOptions{})
	waiter := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "it waits", func() bool { return c.Stats().Waiting == 1 && c.Stats().Channels == 1 })
	handed := counter(proxy, passes())
	closed := make(chan error, 1)
	go func() { closed <- c.Close(bg) }()
	wantErr(t, "the waiter", await(t, "it ends", waiter).err, ErrClosed)
	mustRelease(t, holder)
	if err := await(t, "Close", closed); err != nil {
		t.Error(err)
	}
	if n := handed(); n != 0 {
		t.Errorf("handed on %d times", n)
	}
}

// A hold that is lost while it is being handed on leaves its heir awake: it asks for itself.
func TestHandOver_LostOnTheWay(t *testing.T) {
	t.Parallel()
	eachHandedOn(t, func(t *testing.T, s *handoverSite) {
		held, released := s.stopOnTheWay(t, redistest.HoldRequest)
		s.free(t, "a")
		holdOf(s.holder).lose(ErrLockLost)
		held.Release()
		wantErr(t, "Release", await(t, "Release", released), ErrLockLost)
		mustRelease(t, s.mustGet(t))
	})
}

// What is being handed on is not there yet for who has it next. Renewals that are sent meanwhile leave it out: Redis would say that
// it is gone, and a lease that has only begun would be lost by that.
func TestHandOver_NotRenewedBeforeItIsThere(t *testing.T) {
	t.Parallel()
	for _, kind := range handedOn {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newHandover(t, kind, 0)
			another := mustAcquire(t, s.c, "b", AcquireOptions{})
			held, released := s.stopOnTheWay(t, redistest.HoldRequest)
			renewal := s.proxy.OnMatch(1, runs(renewScript), redistest.HoldReply)
			s.c.dog.RenewAll()
			await(t, "a renewal", renewal.Hit())
			held.Release()
			lease := s.mustGet(t)
			if err := await(t, "Release", released); err != nil {
				t.Errorf("Release: %v", err)
			}
			renewal.Release()
			awaitRenewals(t, another)
			wantHeld(t, lease)
			s.c.dog.RenewAll()
			awaitRenewals(t, lease)
			mustRelease(t, lease)
			mustRelease(t, another)
		})
	}
}

// A fair lock is handed on only to whoever is first of all; else it is freed, and the first is told.
func TestHandOver_FairGoesToTheFirst(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, other := b.client(t, pollInterval(never)), b.client(t, pollInterval(never))
	holder := mustTake(t, bg, c.FairLock("a"), AcquireOptions{})
	queued := func(n int64) {
		eventually(t, "it stands in the queue", func() bool { return b.rdb.LLen(bg, wire.FairQueue("a")).Val() == n })
	}
	first := acquireAsync(bg, other.FairLock("a"), AcquireOptions{WaitTime: WaitForever})
	queued(1)
	here := acquireAsync(bg, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever})
	queued(2)
	listened(t, c, "a")
	mustRelease(t, holder)
	got := await(t, "the first", first)
	if got.err != nil {
		t.Fatal(got.err)
	}
	select {
	case r := <-here:
		t.Fatalf("the second has it as well: %+v", r)
	default:
	}
	mustRelease(t, got.lease)
	second := await(t, "the second", here)
	if second.err != nil {
		t.Fatal(second.err)
	}
	mustRelease(t, second.lease)
}

// Redis does not execute a hand-over, as in a slot whose move has torn the keys of a lock apart. The
// release is a plain one then: it succeeds at once, and the waiter gets the lock by asking for it.
func TestRelease_HandOverThatCannotBeDone(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "-CLUSTERDOWN The cluster is down\r\n"} {
		for name, kind := range allKinds {
			if kind.pass == nil {
				continue
			}
			t.Run(name+" "+reply[1:5], func(t *testing.T) {
				t.Parallel()
				b := newBundle(t)
				c, proxy := b.proxied(t)
				lease := mustTake(t, bg, kind.lock(c, "a"), AcquireOptions{})
				waiter := acquireAsync(bg, kind.lock(c, "a"), AcquireOptions{WaitTime: patience})
				eventually(t, "it sleeps", func() bool { return sleeping(c, "a") == 1 })
				tries := counter(proxy, runs(kind.pass))
				proxy.OnEvery(runs(kind.pass), redistest.ReplyWith(reply))
				mustRelease(t, lease)
				mustRelease(t, mustGet(t, "the waiter", waiter))
				if n := tries(); n != 1 {
					t.Errorf("%d tries of a hand-over that cannot be done", n)
				}
			})
		}
	}
}

// fill has Redis refuse every command that may need memory, until the test ends.
func (b *bundle) fill(t testing.TB) {
	t.Helper()
	b.loadScripts(t)
	set := func(maxmemory string) {
		if err := b.rdb.ConfigSet(bg, "maxmemory", maxmemory).Err(); err != nil {
			t.Error(err)
		}
	}
	set("1")
	t.Cleanup(func() { set("0") })
}

// What a holder does works on a Redis whose memory is full: handing the lock on, extending it,
// releasing one level, and being renewed.
func TestHold_OnAFullRedis(t *testing.T) {
	t.Parallel()
	for name, kind := range allKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c := b.client(t, watchdogTimeout(3*time.Second))
			lock := kind.lock(c, "a")
			outer := mustTake(t, bg, lock, AcquireOptions{})
			inner := mustTake(t, outer.Context(), lock, AcquireOptions{LeaseTime: time.Minute})
			var waiter <-chan acquired
			if kind.pass != nil {
				waiter = acquireAsync(bg, lock, AcquireOptions{WaitTime: patience})
				eventually(t, "it sleeps", func() bool { return sleeping(c, "a") == 1 })
			}
			b.fill(t)
			if err := inner.Extend(bg, time.Hour); err != nil {
				t.Errorf("Extend: %v", err)
			}
			b.wantPTTL(t, "a", time.Hour)
			mustRelease(t, inner)
			if name == "read" { // a time-out key that was evicted is put back
				timeout := wire.ReadTimeout("a", holdOf(outer).field, 1)
				b.rdb.Del(bg, timeout)
				eventually(t, "it is put back", func() bool { return b.pttl(t, timeout) > 0 })
			} else {
				awaitRenewals(t, outer)
			}
			mustRelease(t, outer)
			if waiter != nil {
				mustRelease(t, mustGet(t, "the waiter", waiter))
			}
		})
	}
}

// A waiter leaves the queue of a fair lock on a full Redis, with others behind it.
func TestFair_LeavesTheQueueOfAFullRedis(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	holder := mustTake(t, bg, c.FairLock("a"), AcquireOptions{})
	ctx, leave := context.WithCancel(bg)
	leaving := b.inLineWith(t, ctx, c)[0]
	results := b.inLine(t, c, c)
	b.fill(t)
	leave()
	wantErr(t, "the one that leaves", await(t, "it leaves", leaving).err, ErrStillHeld)
	b.awaitQueued(t, "a", 2)
	if n := b.rdb.ZCard(bg, wire.FairDeadlines("a")).Val(); n != 2 {
		t.Errorf("%d deadlines for two waiters", n)
	}
	mustRelease(t, holder)
	for _, r := range results {
		mustRelease(t, mustGet(t, "one behind it", r))
	}
}

// Every row of the table in docs/engine.md.
func TestHandOver_EveryOutcome(t *testing.T) {
	t.Parallel()
	down := errors.New("no reply")
	type heir int
	const (
		holds heir = iota // has the lock
		fails             // with an error
		waits
		gone
	)
	for _, row := range []struct {
		name     string
		reply    handoverReply
		stray    bool
		err      error // of the reply
		unproven error
		meantime func(s *outcomeSite, t *testing.T) // before the reply is read
		late     time.Duration                      // how late that is

		freed    bool
		release  error // what Release returns
		heir     heir
		acquire  error // what Acquire returns, where it fails
		cleanups int   // where the heir has no place in Redis's queue
		kept     int   // where it has: that is its own to clean up
	}{
		{name: "handed over", reply: handedOver, freed: true, heir: holds},
		{name: "handed over by a retry", reply: handedOver, stray: true, freed: true, heir: holds},
		{name: "handed over late", reply: handedOver, late: time.Hour, freed: true, heir: fails, acquire: errLate, cleanups: 1},
		{name: "handed over and forced", reply: handedOver, meantime: (*outcomeSite).force, freed: true, heir: fails, acquire: errForced, cleanups: 1},
		{name: "handed over without replicas", reply: handedOver, unproven: ErrNotReplicated, freed: true, heir: fails, acquire: ErrNotReplicated, cleanups: 1},
		{name: "handed over to one that has gone", reply: handedOver, meantime: (*outcomeSite).hangUp, freed: true, heir: gone, cleanups: 1, kept: 1},
		{name: "handed over by a hold that was lost", reply: handedOver, meantime: (*outcomeSite).lose, freed: true, release: ErrLockLost, heir: holds, cleanups: 1, kept: 1},
		{name: "freed instead", reply: freedInstead, freed: true, heir: waits},
		{name: "not held", reply: notHeld, freed: true, release: ErrLockLost, heir: waits},
		{name: "not held after a retry", reply: notHeld, stray: true, freed: true, heir: waits, cleanups: 1},
		{name: "not executed", reply: notExecuted, err: down, heir: waits},
		{name: "unknown", reply: outcomeUnknown, stray: true, err: down, freed: true, release: down, heir: fails, acquire: down, cleanups: 2, kept: 1},
		{name: "unknown, and one has gone", reply: outcomeUnknown, stray: true, err: down, meantime: (*outcomeSite).hangUp, freed: true, release: down, heir: gone, cleanups: 2, kept: 2},
	} {
		for _, kind := range handedOn {
			t.Run(row.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newOutcomeSite(t, kind)
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
					t.Errorf("freed: %v, %v, want %v, %v", freed, err, row.freed, row.release)
				}
				cleanups := row.cleanups
				if kind == "fair" {
					cleanups = row.kept
				}
				if n := s.cleanups; n() != cleanups {
					t.Errorf("%d clean-ups, want %d", n(), cleanups)
				}
				switch row.heir {
				case holds, fails:
					got := await(t, "the heir is told", s.waiter)
					if (got.lease != nil) != (row.heir == holds) || !errors.Is(got.err, row.acquire) {
						t.Errorf("the heir: %v, %v, want the error %v", got.lease, got.err, row.acquire)
					}
				case waits:
					if n := s.c.Stats().Waiting; n != 1 {
						t.Errorf("%d wait", n)
					}
				}
			})
		}
	}
}

// An outcomeSite is a hand-over whose command was never sent. What Redis has does not count.
type outcomeSite struct {
	*handoverSite
	o *handover
}

func newOutcomeSite(t *testing.T, kind string) *outcomeSite {
	b := newBundle(t)
	c := newLooseClient(t, b.srv.Client(t), pollInterval(time.Hour))
	s := &handoverSite{bundle: b, c: c, lock: func(c *Client) *Lock { return lockKinds[kind].lock(c, "a") }}
	s.holder = mustTake(t, bg, s.lock(c), AcquireOptions{LeaseTime: time.Minute})
	ctx, leave := context.WithCancel(bg)
	s.leave = leave
	s.waiter = acquireAsync(ctx, s.lock(c), AcquireOptions{WaitTime: time.Hour, LeaseTime: time.Minute})
	listened(t, c, "a") // or it would ask once more
	eventually(t, "it sleeps", func() bool { return sleeping(c, "a") == 1 })
	c.cleaner.schedule.Close() // clean-ups stay pending, to be counted
	h := holdOf(s.holder)
	t.Cleanup(func() {
		leave()
		h.lose(ErrLockLost) // one that was not freed is still being released
		h.unlockTurn()
		ended, cancel := context.WithCancel(bg)
		cancel()
		_ = c.Close(ended)
		b.rdb.FlushAll(bg)
	})

	e := h.entry
	op := c.ops.Op(lua.Holders("a"), patience)
	if _, err := op.Run(nil, nil); err != nil {
		t.Fatal(err)
	}
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	h.turn.tryLocked()
	last := s.holder.backend.(*level)
	last.err = ErrReleased
	h.dropLocked(last)
	g, err := h.planCountsLocked(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := h.handOverLocked(last, g)
	if o == nil {
		t.Fatal("it is not handed over")
	}
	o.op = op
	return &outcomeSite{s, o}
}

func (s *outcomeSite) cleanups() int { return s.c.cleaner.len() }

func (s *outcomeSite) hangUp(t *testing.T) {
	s.leave()
	if got := await(t, "it leaves", s.waiter); got.err == nil {
		t.Fatal("it has the lock")
	}
	for u := range s.c.cleaner.pending { // a fair waiter leaves its place as well
		delete(s.c.cleaner.pending, u)
	}
}

func (s *outcomeSite) force(*testing.T) {
	s.o.hold.entry.shard.mu.Lock()
	defer s.o.hold.entry.shard.mu.Unlock()
	s.o.heir.pending = ""
}

func (s *outcomeSite) lose(*testing.T) { s.o.hold.lose(ErrLockLost) }
