package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/redistest"
)

// The callers of one process are served in the order in which they came, whoever holds the lock at first.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"held here", "held elsewhere"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, holder := b.client(t, commandTimeout(patience)), b.client(t)
			if name == "held here" {
				holder = c
			}
			lease := mustAcquire(t, holder, "a", AcquireOptions{})
			const n = 30
			var order []int // guarded by the lock
			var waiters sync.WaitGroup
			for i := range n {
				waiters.Go(func() {
					err := Do(context.Background(), c.Lock("a"), AcquireOptions{WaitTime: WaitForever}, func(context.Context) error {
						order = append(order, i)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
				eventually(t, "it has queued up", func() bool { return c.Stats().Waiting == i+1 })
			}
			mustRelease(t, lease)
			waiters.Wait()
			if len(order) != n || !slices.IsSorted(order) {
				t.Errorf("served in the order %v", order)
			}
		})
	}
}

// A waiter whose message was lost asks by itself.
func TestHandOverWithoutMessage(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	holder := b.client(t)
	waiter, proxy := b.proxied(t, pollInterval(700*time.Millisecond), commandTimeout(patience))
	swallow := proxy.SwallowMessages(-1)
	lease := mustAcquire(t, holder, "a", AcquireOptions{LeaseTime: time.Hour})
	result := acquireAsync(context.Background(), waiter.Lock("a"), AcquireOptions{WaitTime: WaitForever})
	b.eventuallyListens(t, "a")
	mustRelease(t, lease)
	next := mustGet(t, "the waiter gets it", result)
	await(t, "the message was lost", swallow.Hit())
	mustRelease(t, next)
}

// A caller whose context ends is let go at once, with the error and the cause of its context, whatever is under way, and the
// lock is not left with it. Redisson: testLockIsNotRenewedAfterInterruptedTryLock.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	request := func(p *redistest.Proxy) *redistest.Rule {
		return p.OnMatch(1, runs(acquireScript), redistest.HoldRequest)
	}
	reply := func(p *redistest.Proxy) *redistest.Rule {
		return p.OnMatch(1, runs(acquireScript), redistest.HoldReply)
	}
	subscribe := func(p *redistest.Proxy) *redistest.Rule {
		return p.On("SUBSCRIBE", 1, redistest.HoldRequest)
	}
	for moment, test := range map[string]struct {
		held  bool // by somebody else
		ahead int  // waiters of the same process
		stop  func(p *redistest.Proxy) *redistest.Rule
	}{
		"first in the queue":     {held: true},
		"behind others":          {held: true, ahead: 2},
		"while it subscribes":    {held: true, stop: subscribe},
		"before Redis is asked":  {stop: request},
		"before the reply comes": {stop: reply},
	} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c, proxy := b.proxied(t)
			other := b.client(t)
			var held *Lease
			if test.held {
				held = mustAcquire(t, other, "a", AcquireOptions{})
			}
			var rule *redistest.Rule
			if test.stop != nil {
				rule = test.stop(proxy)
			}
			ctx, hangUp := context.WithCancelCause(context.Background())
			var ahead []<-chan acquired
			for i := range test.ahead {
				ahead = append(ahead, acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever}))
				eventually(t, "one waits", func() bool { return c.Stats().Waiting == i+1 })
			}

			result := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
			switch {
			case rule != nil:
				await(t, "it is at that moment", rule.Hit())
			default:
				b.eventuallyListens(t, "a")
				eventually(t, "it waits", func() bool { return c.Stats().Waiting == test.ahead+1 })
			}
			why := errors.New("the user has closed the window")
			hangUp(why)
			for _, result := range append(ahead, result) {
				r := await(t, "the caller is let go", result)
				if !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, why) {
					t.Errorf("Acquire: %v", r.err)
				}
			}
			if n := c.Stats().Waiting; n != 0 {
				t.Errorf("%d wait", n)
			}

			if rule != nil {
				rule.Release()
			}
			if held != nil {
				mustRelease(t, held)
			}
			mustRelease(t, mustAcquire(t, other, "a", AcquireOptions{WaitTime: patience}))
		})
	}
}

// eventuallyRenewed waits until the time to live of a lock goes up.
func (b *bundle) eventuallyRenewed(t testing.TB, key string) {
	t.Helper()
	lowest := b.pttl(t, key)
	eventually(t, "a renewal of "+key, func() bool {
		ttl := b.pttl(t, key)
		lowest = min(lowest, ttl)
		return ttl > lowest
	})
}

// A Redis that comes back with its data has lost nothing.
func TestRestartWithData(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, watchdogTimeout(15*time.Second))
	lease := mustAcquire(t, c, "a", AcquireOptions{})
	b.srv.Save(t)
	b.srv.Kill(t)
	b.srv.Restart(t)
	b.eventuallyRenewed(t, "a")
	if err := lease.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	if fields := b.fields(t, "a"); fields[lease.hold.field] != "1" {
		t.Errorf("fields: %v", fields)
	}
	mustRelease(t, lease)
}

// A Redis that stands still for longer than the lease: the holder is told when its time is over, and when Redis goes on
// somebody else gets the lock, not both.
func TestRedisStandsStill(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	for name, opts := range map[string]AcquireOptions{
		"watchdog":   {},
		"fixed time": {LeaseTime: lease},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c := b.client(t, watchdogTimeout(lease))
			other := b.client(t, commandTimeout(patience))
			held := mustAcquire(t, c, "a", opts)
			b.srv.Freeze(t)
			frozen := time.Now()
			result := acquireAsync(context.Background(), other.Lock("a"), AcquireOptions{WaitTime: WaitForever})

			await(t, "the holder is told", held.Done())
			// A renewal that was granted just before cannot count for longer than a lease.
			if late := time.Since(frozen) - lease; late > patience/4 {
				t.Errorf("told %v after the lease was over", late)
			}
			if cause := context.Cause(held.Context()); held.Err() != ErrLockLost || cause != ErrLockLost {
				t.Errorf("Err: %v, cause: %v", held.Err(), cause)
			}
			b.srv.Thaw(t)
			r := await(t, "somebody else gets it", result)
			if r.err != nil {
				t.Fatal(r.err)
			}
			// What the old holder still had under way, and its clean-up, have come by the time it is idle.
			eventually(t, "the old holder has nothing at hand", func() bool { return c.Stats() == Stats{} })
			if fields := b.fields(t, "a"); len(fields) != 1 || fields[r.lease.hold.field] != "1" {
				t.Errorf("fields: %v", fields)
			}
			mustRelease(t, r.lease)
		})
	}
}

// A client may be there before its Redis. Redisson: testRedisFailed.
func TestRedisComesUpLater(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	b := newBundle(t)
	b.srv.Kill(t)
	c := b.client(t, commandTimeout(timeout))
	for _, wait := range []time.Duration{0, time.Hour} {
		began := time.Now()
		_, err := c.Lock("a").Acquire(context.Background(), AcquireOptions{WaitTime: wait})
		if err == nil || errors.Is(err, ErrNotAcquired) {
			t.Errorf("Acquire without Redis: %v", err)
		}
		if took := time.Since(began); took > timeout+5*time.Second {
			t.Errorf("it took %v to fail", took)
		}
	}
	b.srv.Restart(t)
	mustRelease(t, acquireSoon(t, c, "a"))
}

// A thousand waiters and no Redis: each is told in time, and when Redis is back the client works as before.
func TestRedisGoesWhileManyWait(t *testing.T) {
	t.Parallel()
	const (
		waiters = 1000
		poll    = 2 * time.Second
		timeout = 6 * time.Second
	)
	type fault struct {
		begin, end func(*redistest.Server, testing.TB)
	}
	faults := map[string]fault{
		"dies":         {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"stands still": {(*redistest.Server).Freeze, (*redistest.Server).Thaw},
	}
	for name, fault := range faults {
		for _, names := range []int{1, waiters} {
			t.Run(fmt.Sprintf("%s, names: %d", name, names), func(t *testing.T) {
				t.Parallel()
				ctx := context.Background()
				b := newBundle(t)
				c := b.client(t, pollInterval(poll), commandTimeout(timeout))
				free := b.holdAll(t, names)

				results := make([]<-chan acquired, waiters)
				for i := range results {
					results[i] = acquireAsync(ctx, c.Lock(heldName(i%names)), long)
				}
				if !within(5*patience, func() bool { return c.Stats().Waiting == waiters && c.Stats().Channels == names }) {
					t.Fatalf("it never happened: all wait; %+v", c.Stats())
				}
				fault.begin(b.srv, t)
				began := time.Now()
				for _, result := range results {
					r := await(t, "the waiter is told", result)
					if r.err == nil || errors.Is(r.err, ErrNotAcquired) {
						t.Fatalf("Acquire: %v, %v", r.lease, r.err)
					}
				}
				if took := time.Since(began); took > 3*(poll+timeout) {
					t.Errorf("the last was told after %v", took)
				}

				fault.end(b.srv, t)
				eventually(t, "nothing is left to do", func() bool { return c.Stats() == Stats{} })
				free()
				for i := range min(names, 20) {
					mustRelease(t, acquireSoon(t, c, heldName(i)))
				}
			})
		}
	}
}

// acquireSoon takes a lock from a Redis that is back. The Redis client goes on answering with its last dial error, without
// another try, until a look it takes once a second finds the server there.
func acquireSoon(t testing.TB, c *Client, name string) (lease *Lease) {
	t.Helper()
	eventually(t, "the client finds Redis again", func() bool {
		var err error
		lease, err = c.Lock(name).Acquire(context.Background(), AcquireOptions{WaitTime: patience})
		return err == nil
	})
	return lease
}

func heldName(i int) string { return fmt.Sprintf("held:%d", i) }

// holdAll has some names held by another program, for an hour or until free is called.
func (b *bundle) holdAll(t testing.TB, names int) (free func()) {
	t.Helper()
	ctx := context.Background()
	do := func(f func(p redis.Pipeliner, key string)) {
		t.Helper()
		_, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range names {
				f(p, heldName(i))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	do(func(p redis.Pipeliner, key string) {
		p.HSet(ctx, key, "another program:1", 1)
		p.PExpire(ctx, key, time.Hour)
	})
	return func() { do(func(p redis.Pipeliner, key string) { p.Del(ctx, key) }) }
}
