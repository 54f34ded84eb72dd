package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// An absence makes Redis refuse a number of scripts without running them.
type absence struct {
	begin   func()
	refused func() int
}

const refusals = 3

var outages = map[string]func(fx *redisFixture, t *testing.T) (*Client, *absence){
	"no connection": func(fx *redisFixture, t *testing.T) (*Client, *absence) {
		fx.loadScripts(t)
		d := &downtime{}
		proxy := fx.srv.Proxy(t)
		rdb := proxy.ClientWith(t, func(o *redis.Options) {
			o.Dialer, o.DialerRetries = d.dial, 1
			o.PoolSize = 1 // then the library returns an old dial error until it has dialed again by itself
		})
		rdb.AddHook(d)
		return fx.newLocksOn(t, rdb, pollInterval(time.Hour)), &absence{
			begin: func() {
				waitUntilStable(func() int { return proxy.Count("") }) // connections are dialed in the background
				d.left.Store(refusals)
				proxy.Cut()
				proxy.Restore()
			},
			refused: func() int { return int(refusals - max(0, d.left.Load())) },
		}
	},
	"a replica without its master": func(fx *redisFixture, t *testing.T) (*Client, *absence) {
		c, proxy := fx.newProxiedLocks(t, pollInterval(time.Hour))
		return c, refuseBy(proxy, "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n")
	},
	"a cluster without a master": func(fx *redisFixture, t *testing.T) (*Client, *absence) {
		c, proxy := fx.newProxiedLocks(t, pollInterval(time.Hour))
		return c, refuseBy(proxy, "-CLUSTERDOWN The cluster is down\r\n")
	},
}

// A downtime refuses connections until a number of commands has failed.
type downtime struct{ left atomic.Int32 }

func (d *downtime) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.left.Load() > 0 {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

func (d *downtime) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *downtime) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		d.count(cmd, err)
		return err
	}
}

func (d *downtime) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			d.count(cmd, err)
		}
		return err
	}
}

func (d *downtime) count(cmd redis.Cmder, err error) {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" && strings.HasPrefix(cmd.Name(), "eval") {
		d.left.Add(-1)
	}
}

// refuseBy is an absence that answers scripts with an error.
func refuseBy(proxy *redistest.Proxy, reply string) *absence {
	left := new(atomic.Int32)
	return &absence{
		begin: func() {
			left.Store(refusals)
			proxy.OnEvery(func(args []string) bool { return runsScript()(args) && left.Add(-1) >= 0 }, redistest.ReplyWith(reply))
		},
		refused: func() int { return int(refusals - max(0, left.Load())) },
	}
}

// Releases and extensions are retried until Redis takes them. Acquire fails at once while Redis is
// away.
func TestRedisIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	for name, outageOf := range outages {
		for what, test := range map[string]func(t *testing.T, fx *redisFixture, c *Client, o *absence){
			"release": func(t *testing.T, fx *redisFixture, c *Client, o *absence) {
				lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
				o.begin()
				mustRelease(t, lease)
				fx.wantFree(t, "a")
			},
			"release of a level": func(t *testing.T, fx *redisFixture, c *Client, o *absence) {
				outer := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
				inner := mustAcquire(t, outer.Context(), c.Lock("a"), AcquireOptions{})
				o.begin()
				mustRelease(t, inner)
				wantHoldCount(t, outer.Context(), c.Lock("a"), 1)
				mustRelease(t, outer)
			},
			"release with a record": func(t *testing.T, fx *redisFixture, c *Client, o *absence) {
				lease := mustBegin(t, c.Once("a"), AcquireOptions{})
				o.begin()
				if err := lease.ReleaseWith(bg, []byte("done"), time.Hour); err != nil {
					t.Fatal(err)
				}
				if r := acquireOnce(bg, c.Once("a"), AcquireOptions{}); r.record != "done" {
					t.Errorf("the record is %+v", r)
				}
				fx.rdb.FlushAll(bg)
			},
			"hand-over": func(t *testing.T, fx *redisFixture, c *Client, o *absence) {
				lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{})
				waiting := acquireAsync(bg, c.Lock("a"), forever)
				eventually(t, "the waiter to subscribe, ask once more and sleep", func() bool {
					e := c.names.open("a", false)
					defer e.close()
					return e.queue.Len() == 1 && e.firstSleepsLocked()
				})
				o.begin()
				mustRelease(t, lease)
				mustRelease(t, mustReceiveLease(t, "the waiter to be handed the lock", waiting))
			},
			"extension": func(t *testing.T, fx *redisFixture, c *Client, o *absence) {
				lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Minute})
				o.begin()
				if err := lease.Extend(bg, time.Hour); err != nil {
					t.Fatal(err)
				}
				mustRelease(t, lease)
			},
			"acquire": func(t *testing.T, fx *redisFixture, c *Client, o *absence) {
				mustRelease(t, mustAcquire(t, bg, c.Lock("a"), AcquireOptions{}))
				o.begin()
				for i := range refusals {
					lease, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: patience})
					if n := o.refused(); err == nil || n != i+1 {
						t.Fatalf("Acquire %d: %v, %v, after %d refusals", i+1, lease, err, n)
					}
				}
				eventually(t, "Redis to be back", func() bool {
					lease, err := c.Lock("a").Acquire(bg, AcquireOptions{})
					return err == nil && lease.Release(bg) == nil
				})
			},
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				fx := newRedis(t)
				c, o := outageOf(fx, t)
				test(t, fx, c, o)
				if n := o.refused(); n < refusals {
					t.Errorf("%d commands were refused, want %d at least", n, refusals)
				}
			})
		}
	}
}

// A release fails after CommandTimeout, and goes on in the background.
func TestRedisStaysAway(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	const timeout = time.Second
	c, proxy := fx.newProxiedLocks(t, commandTimeout(timeout))
	lease := mustAcquire(t, bg, c.Lock("a"), AcquireOptions{LeaseTime: time.Hour})
	rule := proxy.OnEvery(runsScript(), redistest.ReplyWith("-READONLY You can't write against a read only replica.\r\n"))
	began := time.Now()
	err := lease.Release(bg)
	took := time.Since(began)
	// On a busy machine, time may be over while the last try is under way.
	if took < timeout/2 || !redisop.HasCode(err, "READONLY") && !errors.Is(err, redisop.ErrTimeout) {
		t.Errorf("Release: %v after %s", err, took)
	}
	rule.Remove()
	eventually(t, "the lock to be released", func() bool { return len(fx.hash(t, "a")) == 0 })
}

// releaseSoon releases a lease of a client with a short CommandTimeout. On a busy machine it may not
// suffice. The cleaner frees the lock then, and the test's end waits for that.
func releaseSoon(t testing.TB, lease *Lease) {
	t.Helper()
	if err := lease.Release(bg); err != nil && !errors.Is(err, redisop.ErrTimeout) {
		t.Fatalf("Release: %v", err)
	}
}

// retrying counts the failed attempts of callers that wait for ever.
func retrying(n *atomic.Int64) func(*Options) {
	return func(o *Options) {
		o.Observer.Retrying = func(_ context.Context, e Event) {
			if e.Err != nil {
				n.Add(1)
			}
		}
	}
}

// A caller that waits for ever outlasts an outage, whether it came before or during it.
func TestWaitForever_OutlastsAnOutage(t *testing.T) {
	t.Parallel()
	eachOf(t, excludingKinds, func(t *testing.T, kind lockKind) {
		fx := newRedis(t)
		var retries atomic.Int64
		c, proxy := fx.newProxiedLocks(t, retrying(&retries), commandTimeout(time.Second))
		holder := mustAcquire(t, bg, kind.rival(fx.newLocks(t), "a"), AcquireOptions{})
		before := acquireAsync(bg, kind.lock(c, "a"), forever)
		eventually(t, "the waiter to sleep", func() bool { return sleepingWaiters(c, "a") == 1 })
		proxy.Cut()
		during := merge(acquireAsync(bg, kind.lock(c, "b"), forever), acquireAsync(bg, kind.lock(c, "b"), forever))
		eventually(t, "four retries", func() bool { return retries.Load() >= 4 })
		for what, wait := range map[string]time.Duration{"does not wait": 0, "waits for a while": time.Minute} {
			_, err := kind.lock(c, "b").Acquire(bg, AcquireOptions{WaitTime: wait})
			if f := faultOf(err); f == nil || !f.Heals {
				t.Errorf("one that %s: %v, want the trouble with Redis", what, err)
			}
		}
		mustRelease(t, holder) // its message is missed
		proxy.Restore()
		releaseSoon(t, mustReceiveLease(t, "the waiter that came before the outage", before))
		for range 2 {
			releaseSoon(t, mustReceiveLease(t, "those that came during the outage", during))
		}
	})
}

// A caller that waits for ever retries after an error that may pass, and returns any other at once.
func TestWaitForever_Replies(t *testing.T) {
	t.Parallel()
	for reply, passes := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                                   true,
		"READONLY You can't write against a read only replica.":                            true,
		"CLUSTERDOWN The cluster is down":                                                  true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": true,
		"OOM command not allowed when used memory > 'maxmemory'.":                          true,
		"BUSY Redis is busy running a script.":                                             true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                          true,
		"MISCONF Redis is configured to save RDB snapshots":                                true,
		"NOREPLICAS Not enough good replicas to write.":                                    true,
		"ERR max number of clients reached":                                                true,
		"NOPERM User limited has no permissions to run the 'evalsha' command":              false,
		"NOAUTH Authentication required.":                                                  false,
		"WRONGPASS invalid username-password pair or user is disabled.":                    false,
		"ERR unknown command 'EVALSHA'":                                                    false,
		"ERR something else":                                                               false,
	} {
		t.Run(strings.Fields(reply)[0], func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			var retries atomic.Int64
			timeout := 200 * time.Millisecond // for what is repeated until then
			if !passes {
				timeout = patience
			}
			c, proxy := fx.newProxiedLocks(t, retrying(&retries), commandTimeout(timeout))
			rule := proxy.OnEvery(runsScript(acquireScript), redistest.ReplyWith("-"+reply+"\r\n"))
			result := acquireAsync(bg, c.Lock("a"), forever)
			if !passes {
				r := mustReceive(t, "the caller to be told", result)
				if r.err == nil || retries.Load() != 0 {
					t.Fatalf("%v after %d retries", r.err, retries.Load())
				}
				return
			}
			eventually(t, "a retry", func() bool { return retries.Load() >= 3 })
			rule.Remove()
			releaseSoon(t, mustReceiveLease(t, "the waiter", result))
		})
	}
}

// The end of its context ends the wait during an outage, and so does Close.
func TestWaitForever_EndsInAnOutage(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	proxy := fx.srv.Proxy(t)
	var retries atomic.Int64
	c := newUncheckedLocks(t, proxy.Client(t), retrying(&retries), commandTimeout(200*time.Millisecond))
	proxy.Cut()
	ctx, cancel := context.WithCancel(bg)
	leaving := acquireAsync(ctx, c.Lock("a"), forever)
	staying := acquireAsync(bg, c.Lock("b"), forever)
	eventually(t, "retries", func() bool { return retries.Load() >= 4 })
	cancel()
	wantErr(t, "the one whose context ends", mustReceive(t, "it to leave", leaving).err, context.Canceled)
	mustClose(t, c)
	wantErr(t, "the other one", mustReceive(t, "it to end", staying).err, ErrClosed)
}

// A MultiLock outlasts an outage of the first server and of another one.
func TestWaitForever_SeveralLocks(t *testing.T) {
	t.Parallel()
	for _, cut := range []string{"a", "b"} {
		t.Run(cut, func(t *testing.T) {
			t.Parallel()
			var retries atomic.Int64
			up, down := newRedis(t), newRedis(t)
			proxy := down.srv.Proxy(t)
			var refused atomic.Int64
			count := func(o *Options) {
				o.Observer.NotAcquired = func(context.Context, Event) { refused.Add(1) }
			}
			away := down.newLocksOn(t, proxy.Client(t), retrying(&retries), count, commandTimeout(200*time.Millisecond))
			here := up.newLocks(t)
			proxy.Cut()
			other := map[string]string{"a": "b", "b": "a"}[cut]
			result := acquireAsync(bg, MultiLock(here.Lock(other), away.Lock(cut)), forever)
			eventually(t, "a retry", func() bool { return retries.Load()+refused.Load() >= 4 })
			_, err := MultiLock(here.Lock("c"), away.Lock("d")).Acquire(bg, AcquireOptions{WaitTime: time.Minute})
			if f := faultOf(err); f == nil || !f.Heals {
				t.Errorf("one that waits for a minute: %v, want the trouble with Redis", err)
			}
			proxy.Restore()
			releaseSoon(t, mustReceiveLease(t, "all the locks", result))
		})
	}
}

// Errors that waiting cannot heal end the wait for several locks at once.
func TestWaitForever_SeveralLocksThatCannotBeHad(t *testing.T) {
	t.Parallel()
	const denied = "-NOPERM User limited has no permissions to run the 'evalsha' command\r\n"
	var members []Locker
	for i := range 3 {
		fx := newRedis(t)
		c, proxy := fx.newProxiedLocks(t)
		if i < 2 {
			proxy.OnEvery(runsScript(acquireScript), redistest.ReplyWith(denied))
		}
		members = append(members, c.Lock("a"))
	}
	fx := newRedis(t)
	c := fx.newLocks(t)
	rw := c.ReadWriteLock("a")
	read := mustAcquire(t, bg, rw.Read(), AcquireOptions{})
	for what, test := range map[string]struct {
		ctx  context.Context
		lock Locker
		want string
	}{
		"no permission for one of three":   {bg, MultiLock(members...), "NOPERM"},
		"no permission for two of three":   {bg, RedLock(members...), "NOPERM"},
		"the write side beside a reader's": {read.Context(), MultiLock(rw.Write(), c.Lock("b")), ErrUpgrade.Error()},
	} {
		r := mustReceive(t, what, acquireAsync(test.ctx, test.lock, forever))
		if r.err == nil || !strings.Contains(r.err.Error(), strings.TrimPrefix(test.want, "reqlock: ")) {
			t.Errorf("%s: %v, want %s", what, r.err, test.want)
		}
	}
	mustRelease(t, read)
}

// Two locks of one shard fail with different errors. A caller that does not wait gets the error of
// the lock that it asks for. They are fenced: the commands of plain locks may go out as one. Neither
// error is one that a command is sent again for, as it is after READONLY: so the waiters are asleep
// most of the time.
func TestOutage_ErrorOfAnotherName(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocks(t)
	first, second := "a", ""
	for i := 0; second == ""; i++ {
		if name := fmt.Sprint("b", i); c.names.shard(name) == c.names.shard(first) {
			second = name
		}
	}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	var waiters []<-chan acquireResult
	for name, reply := range map[string]string{first: "-MISCONF of the first\r\n", second: "-OOM of the second\r\n"} {
		proxy.OnEvery(func(args []string) bool {
			return runsScript(fencedAcquireScript)(args) && slices.Contains(args, name)
		}, redistest.ReplyWith(reply))
		waiters = append(waiters, acquireAsync(ctx, c.FencedLock(name), forever))
		eventually(t, "the waiter for "+name+" to sleep", func() bool { return sleepingWaiters(c, name) == 1 })
	}
	for name, want := range map[string]string{first: "of the first", second: "of the second"} {
		_, err := c.FencedLock(name).Acquire(bg, AcquireOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want the error %q", name, err, want)
		}
	}
	cancel()
	for _, w := range waiters {
		if r := mustReceive(t, "the waiter to leave", w); !errors.Is(r.err, context.Canceled) {
			t.Errorf("the waiter: %v", r.err)
		}
	}
}

// When Redis fails, the queued waiters fail together, not after one command timeout each.
func TestOutage_FailsAllWhoWereQueued(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]redistest.Action{
		"no answer":      redistest.DropReply,
		"an error reply": redistest.ReplyWith("-ERR trouble\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			const timeout = 4 * time.Second
			c, proxy := fx.newProxiedLocksWith(t, readTimeout(timeout+time.Second), pollInterval(never), commandTimeout(timeout))
			fx.lockAsStranger(t, 0, "a")
			var waiters []<-chan acquireResult
			for range 10 {
				waiters = append(waiters, startWaiter(t, bg, c, "a", long))
			}
			eventuallyAsleep(t, c, "a")
			letConnectionsIdle(t)
			rule := proxy.OnMatch(1, runsScript(acquireScript), trouble)
			proxy.OnMatch(2, runsScript(acquireScript), trouble) // the same attempt, on a new connection
			begun := time.Now()
			fx.publishRelease(t, "a")
			mustReceive(t, "the first waiter's attempt", rule.Hit())
			var texts []string
			for _, w := range waiters {
				got := mustReceive(t, "a waiter to fail", w)
				if got.err == nil || errors.Is(got.err, ErrNotAcquired) || errors.Is(got.err, ErrNotHeld) || errors.Is(got.err, context.DeadlineExceeded) {
					t.Fatalf("%+v, want the error of Redis", got)
				}
				texts = append(texts, got.err.Error())
			}
			if took := time.Since(begun); took > 3*timeout {
				t.Errorf("the waiters failed after %s, the command timeout is %s", took, timeout)
			}
			for _, text := range texts {
				if text != texts[0] {
					t.Errorf("waiters failed with %q and %q, want the same error", text, texts[0])
				}
			}
			fx.deleteKeys(t, "a")
		})
	}
}

// A waiter that comes after a failed attempt was sent makes its own attempt.
func TestOutage_SparesThoseWhoCameLater(t *testing.T) {
	t.Parallel()
	fx := newRedis(t)
	c, proxy := fx.newProxiedLocksWith(t, readTimeout(5*time.Second), pollInterval(never), commandTimeout(4*time.Second))
	fx.lockAsStranger(t, 0, "a", "b")
	elsewhere := startWaiter(t, bg, c, "b", long)
	first := startWaiter(t, bg, c, "a", long)
	second := startWaiter(t, bg, c, "a", long)
	eventuallyAsleep(t, c, "a", "b")
	letConnectionsIdle(t)
	lost := proxy.OnMatch(1, runsScript(acquireScript), redistest.DropReply)
	proxy.OnMatch(2, runsScript(acquireScript), redistest.DropReply) // the same attempt, on a new connection
	fx.publishRelease(t, "a")
	mustReceive(t, "the first waiter's attempt", lost.Hit())
	third := startWaiter(t, bg, c, "a", long)
	for _, w := range []<-chan acquireResult{first, second} {
		if got := mustReceive(t, "a waiter to fail", w); got.err == nil {
			t.Fatal("a waiter got a lock that is held")
		}
	}
	fx.deleteKeys(t, "a", "b")
	fx.publishRelease(t, "a")
	fx.publishRelease(t, "b")
	mustRelease(t, mustReceiveLease(t, "the later waiter's lease", third))
	mustRelease(t, mustReceiveLease(t, "the lease on the other name", elsewhere))
}

// Redis dies under a thousand waiters. All fail within one command timeout of the poll that
// noticed.
func TestOutage_AThousandWaiters(t *testing.T) {
	t.Parallel()
	const n, poll, timeout = 1000, time.Second, 4 * time.Second
	for _, test := range []struct {
		name      string
		end, back func(*redistest.Server, testing.TB)
	}{
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
		{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Thaw},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fx := newRedis(t)
			c := fx.newLocks(t, pollInterval(poll), commandTimeout(timeout))
			fx.lockAsStranger(t, 0, "a")
			errs := make(chan error, n)
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					_, err := c.Lock("a").Acquire(bg, long)
					errs <- err
				})
			}
			eventually(t, "all waiters", func() bool { return c.Stats().Waiting == n })
			begun := time.Now()
			test.end(fx.srv, t)
			wg.Wait()
			if took := time.Since(begun); took > 5*(poll+timeout) {
				t.Errorf("the last waiter failed after %s", took)
			} else {
				t.Logf("the last waiter failed after %s", took)
			}
			close(errs)
			for err := range errs {
				if err == nil || errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrNotHeld) || errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("%v, want the error of Redis", err)
				}
			}
			test.back(fx.srv, t)
			fx.deleteKeys(t, "a")
		})
	}
}
