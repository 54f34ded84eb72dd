package core

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/internal/redistest"
)

// An absence is a way to have Redis refuse the next scripts without running them. It is over when it has refused a number.
type absence struct {
	begin   func()
	refused func() int
}

const refusals = 3

var outages = map[string]func(b *bundle, t *testing.T) (*Client, *absence){
	"no connection": func(b *bundle, t *testing.T) (*Client, *absence) {
		b.loadScripts(t)
		d := &downtime{}
		proxy := b.srv.Proxy(t)
		rdb := proxy.ClientWith(t, func(o *redis.Options) {
			o.Dialer, o.DialerRetries = d.dial, 1
			o.PoolSize = 1 // then the library returns an old dial error until it has dialed again by itself
		})
		rdb.AddHook(d)
		return b.clientOn(t, rdb, pollInterval(time.Hour)), &absence{
			begin: func() {
				d.left.Store(refusals)
				proxy.Cut()
				proxy.Restore()
			},
			refused: func() int { return int(refusals - d.left.Load()) },
		}
	},
	"a master that has become a replica": func(b *bundle, t *testing.T) (*Client, *absence) {
		c, proxy := b.proxied(t, pollInterval(time.Hour))
		return c, refuseBy(proxy, "-READONLY You can't write against a read only replica.\r\n")
	},
	"a cluster without a master": func(b *bundle, t *testing.T) (*Client, *absence) {
		c, proxy := b.proxied(t, pollInterval(time.Hour))
		return c, refuseBy(proxy, "-CLUSTERDOWN The cluster is down\r\n")
	},
}

// A downtime refuses connections until that has failed a number of commands.
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
		if redisop.IsDial(err) && strings.HasPrefix(cmd.Name(), "eval") {
			d.left.Add(-1)
		}
		return err
	}
}

func (d *downtime) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// refuseBy is an absence in which the next scripts are answered with an error.
func refuseBy(proxy *redistest.Proxy, reply string) *absence {
	left := new(atomic.Int32)
	return &absence{
		begin: func() {
			left.Store(refusals)
			proxy.OnEvery(func(args []string) bool { return runs()(args) && left.Add(-1) >= 0 }, redistest.ReplyWith(reply))
		},
		refused: func() int { return int(refusals - max(0, left.Load())) },
	}
}

// Releases and extensions are repeated until Redis has them. Acquire fails at once while Redis is away.
func TestRedisIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	for name, outageOf := range outages {
		for what, test := range map[string]func(t *testing.T, b *bundle, c *Client, o *absence){
			"release": func(t *testing.T, b *bundle, c *Client, o *absence) {
				lease := mustAcquire(t, c, "a", AcquireOptions{})
				o.begin()
				mustRelease(t, lease)
				b.wantFree(t, "a")
			},
			"release of a level": func(t *testing.T, b *bundle, c *Client, o *absence) {
				outer := mustAcquire(t, c, "a", AcquireOptions{})
				inner := mustEnter(t, outer.Context(), c, "a", AcquireOptions{})
				o.begin()
				mustRelease(t, inner)
				wantCount(t, outer.Context(), c.Lock("a"), 1)
				mustRelease(t, outer)
			},
			"release with a record": func(t *testing.T, b *bundle, c *Client, o *absence) {
				lease := mustBegin(t, c.Once("a"), AcquireOptions{})
				o.begin()
				if err := lease.ReleaseWith(bg, []byte("done"), time.Hour); err != nil {
					t.Fatal(err)
				}
				if r := acquireOnce(bg, c.Once("a"), AcquireOptions{}); r.record != "done" {
					t.Errorf("the record is %+v", r)
				}
				b.rdb.FlushAll(bg)
			},
			"hand-over": func(t *testing.T, b *bundle, c *Client, o *absence) {
				lease := mustAcquire(t, c, "a", AcquireOptions{})
				waiting := acquireAsync(bg, c.Lock("a"), forever)
				eventually(t, "the waiter listens, has asked once more, and sleeps", func() bool {
					e := c.names.lock("a")
					defer e.unlock()
					return e.queue.Len() == 1 && e.firstSleepsLocked()
				})
				o.begin()
				mustRelease(t, lease)
				mustRelease(t, mustGet(t, "the lock is handed on", waiting))
			},
			"extension": func(t *testing.T, b *bundle, c *Client, o *absence) {
				lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Minute})
				o.begin()
				if err := lease.Extend(bg, time.Hour); err != nil {
					t.Fatal(err)
				}
				mustRelease(t, lease)
			},
			"acquire": func(t *testing.T, b *bundle, c *Client, o *absence) {
				mustRelease(t, mustAcquire(t, c, "a", AcquireOptions{}))
				o.begin()
				for i := range refusals {
					lease, err := c.Lock("a").Acquire(bg, AcquireOptions{WaitTime: patience})
					if n := o.refused(); err == nil || n != i+1 {
						t.Fatalf("Acquire %d: %v, %v, after %d refusals", i+1, lease, err, n)
					}
				}
				eventually(t, "Redis is back", func() bool {
					lease, err := c.Lock("a").Acquire(bg, AcquireOptions{})
					return err == nil && lease.Release(bg) == nil
				})
			},
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := newBundle(t)
				c, o := outageOf(b, t)
				test(t, b, c, o)
				if n := o.refused(); n < refusals {
					t.Errorf("%d commands were refused, want %d at least", n, refusals)
				}
			})
		}
	}
}

// A release is given up when its time is over, and goes on in the background.
func TestRedisStaysAway(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const timeout = time.Second
	c, proxy := b.proxied(t, commandTimeout(timeout))
	lease := mustAcquire(t, c, "a", AcquireOptions{LeaseTime: time.Hour})
	rule := proxy.OnEvery(runs(), redistest.ReplyWith("-READONLY You can't write against a read only replica.\r\n"))
	began := time.Now()
	err := lease.Release(bg)
	if took := time.Since(began); !redisop.HasCode(err, "READONLY") || took < timeout/2 {
		t.Errorf("Release: %v after %s", err, took)
	}
	rule.Remove()
	eventually(t, "it is released", func() bool { return len(b.fields(t, "a")) == 0 })
}
