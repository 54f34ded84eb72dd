package core

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/redistest"
)

// retrying counts the questions that a caller that waits for ever asks in vain.
func retrying(n *atomic.Int64) func(*Options) {
	return func(o *Options) {
		o.Observer.Retrying = func(_ context.Context, e Event) {
			if e.Err != nil {
				n.Add(1)
			}
		}
	}
}

// mustBe fails the test unless a lock was acquired.
func mustBe(t testing.TB, r acquired) *Lease {
	t.Helper()
	if r.err != nil {
		t.Fatalf("Acquire: %v", r.err)
	}
	return r.lease
}

// A caller that waits for ever waits through an outage, whether it came before or during it.
func TestWaitForever_OutlastsAnOutage(t *testing.T) {
	t.Parallel()
	for name, kind := range allKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			var retries atomic.Int64
			c, proxy := b.proxied(t, retrying(&retries), commandTimeout(time.Second))
			lock, blocks := kind.lock, kind.lock
			if name == "read" {
				blocks = allKinds["write"].lock
			}
			holder := mustTake(t, bg, blocks(b.client(t), "a"), AcquireOptions{})
			forever := AcquireOptions{WaitTime: WaitForever}
			before := acquireAsync(bg, lock(c, "a"), forever)
			eventually(t, "it sleeps", func() bool { return sleeping(c, "a") == 1 })
			proxy.Cut()
			during := acquireAsync(bg, lock(c, "b"), forever)
			behind := acquireAsync(bg, lock(c, "b"), forever)
			eventually(t, "they ask in vain, and again", func() bool { return retries.Load() >= 4 })
			for what, wait := range map[string]time.Duration{"does not wait": 0, "waits for a while": time.Minute} {
				_, err := lock(c, "b").Acquire(bg, AcquireOptions{WaitTime: wait})
				if f := faultOf(err); f == nil || !f.Heals {
					t.Errorf("one that %s: %v, want the trouble with Redis", what, err)
				}
			}
			mustRelease(t, holder) // its message is missed
			proxy.Restore()
			mustRelease(t, mustGet(t, "the one that waited", before))
			for range 2 { // in either order
				select {
				case r := <-during:
					mustRelease(t, mustBe(t, r))
				case r := <-behind:
					mustRelease(t, mustBe(t, r))
				case <-time.After(patience):
					t.Fatal("timed out waiting for those that came during the outage")
				}
			}
		})
	}
}

// What Redis answers may pass, or not: a caller that waits for ever waits for the one, and is told of
// the other at once.
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
			b := newBundle(t)
			var retries atomic.Int64
			timeout := 200 * time.Millisecond // for what is repeated until then
			if !passes {
				timeout = patience
			}
			c, proxy := b.proxied(t, retrying(&retries), commandTimeout(timeout))
			rule := proxy.OnEvery(runs(acquireScript), redistest.ReplyWith("-"+reply+"\r\n"))
			result := acquireAsync(bg, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
			if !passes {
				r := await(t, "it is told", result)
				if r.err == nil || retries.Load() != 0 {
					t.Fatalf("%v after %d retries", r.err, retries.Load())
				}
				return
			}
			eventually(t, "it asks again", func() bool { return retries.Load() >= 3 })
			rule.Remove()
			mustRelease(t, mustGet(t, "it", result))
		})
	}
}

// Its context ends the wait in an outage too, and so does Close.
func TestWaitForever_EndsInAnOutage(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	proxy := b.srv.Proxy(t)
	var retries atomic.Int64
	c := newLooseClient(t, proxy.Client(t), retrying(&retries), commandTimeout(200*time.Millisecond))
	proxy.Cut()
	ctx, cancel := context.WithCancel(bg)
	leaving := acquireAsync(ctx, c.Lock("a"), AcquireOptions{WaitTime: WaitForever})
	staying := acquireAsync(bg, c.Lock("b"), AcquireOptions{WaitTime: WaitForever})
	eventually(t, "they ask again", func() bool { return retries.Load() >= 4 })
	cancel()
	wantErr(t, "the one whose context ends", await(t, "it leaves", leaving).err, context.Canceled)
	if err := c.Close(bg); err != nil {
		t.Errorf("Close: %v", err)
	}
	wantErr(t, "the other one", await(t, "it ends", staying).err, ErrClosed)
}

// Several locks as one wait through an outage as well, of the first server and of another.
func TestWaitForever_SeveralLocks(t *testing.T) {
	t.Parallel()
	for _, cut := range []string{"a", "b"} {
		t.Run(cut, func(t *testing.T) {
			t.Parallel()
			var retries atomic.Int64
			up, down := newBundle(t), newBundle(t)
			proxy := down.srv.Proxy(t)
			var refused atomic.Int64
			count := func(o *Options) {
				o.Observer.NotAcquired = func(context.Context, Event) { refused.Add(1) }
			}
			away := down.clientOn(t, proxy.Client(t), retrying(&retries), count, commandTimeout(200*time.Millisecond))
			here := up.client(t)
			proxy.Cut()
			other := map[string]string{"a": "b", "b": "a"}[cut]
			result := acquireAsync(bg, MultiLock(here.Lock(other), away.Lock(cut)), AcquireOptions{WaitTime: WaitForever})
			eventually(t, "it asks again", func() bool { return retries.Load()+refused.Load() >= 4 })
			_, err := MultiLock(here.Lock("c"), away.Lock("d")).Acquire(bg, AcquireOptions{WaitTime: time.Minute})
			if f := faultOf(err); f == nil || !f.Heals {
				t.Errorf("one that waits for a minute: %v, want the trouble with Redis", err)
			}
			proxy.Restore()
			mustRelease(t, mustGet(t, "all of them", result))
		})
	}
}

// What waiting cannot heal ends the wait for several locks at once.
func TestWaitForever_SeveralLocksThatCannotBeHad(t *testing.T) {
	t.Parallel()
	const denied = "-NOPERM User limited has no permissions to run the 'evalsha' command\r\n"
	var members []Locker
	for i := range 3 {
		b := newBundle(t)
		c, proxy := b.proxied(t)
		if i < 2 {
			proxy.OnEvery(runs(acquireScript), redistest.ReplyWith(denied))
		}
		members = append(members, c.Lock("a"))
	}
	b := newBundle(t)
	c := b.client(t)
	rw := c.ReadWriteLock("a")
	read := mustTake(t, bg, rw.Read(), AcquireOptions{})
	for what, test := range map[string]struct {
		ctx  context.Context
		lock Locker
		want string
	}{
		"no permission for one of three":   {bg, MultiLock(members...), "NOPERM"},
		"no permission for two of three":   {bg, RedLock(members...), "NOPERM"},
		"the write side beside a reader's": {read.Context(), MultiLock(rw.Write(), c.Lock("b")), ErrUpgrade.Error()},
	} {
		r := await(t, what, acquireAsync(test.ctx, test.lock, AcquireOptions{WaitTime: WaitForever}))
		if r.err == nil || !strings.Contains(r.err.Error(), strings.TrimPrefix(test.want, "reqlock: ")) {
			t.Errorf("%s: %v, want %s", what, r.err, test.want)
		}
	}
	mustRelease(t, read)
}
