package core

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// inLine has waiters queue up for the fair lock "a" one after the other.
func (b *bundle) inLine(t testing.TB, clients ...*Client) (results []<-chan acquired) {
	t.Helper()
	return b.inLineWith(t, bg, clients...)
}

// inLineWith is inLine for callers with a context, behind those who stand there.
func (b *bundle) inLineWith(t testing.TB, ctx context.Context, clients ...*Client) (results []<-chan acquired) {
	t.Helper()
	before := b.rdb.LLen(bg, wire.FairQueue("a")).Val()
	for i, c := range clients {
		results = append(results, acquireAsync(ctx, c.FairLock("a"), AcquireOptions{WaitTime: WaitForever}))
		b.awaitQueued(t, "a", before+int64(i+1))
	}
	return results
}

// The process of the first waiters dies. The next one gets the lock long before FairWaitTimeout is
// over, whether the lock is released or its holder died too.
func TestFair_DeadHeadsArePassedOver(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"released": 0, "expired": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			proxy := b.srv.Proxy(t)
			dying := newLooseClient(t, proxy.Client(t), commandTimeout(100*time.Millisecond))
			living := b.client(t)
			holder := mustTake(t, bg, dying.FairLock("a"), AcquireOptions{LeaseTime: lease})
			results := b.inLine(t, dying, dying, living)
			proxy.Cut() // from now on Redis does not hear of it
			if lease == 0 {
				if err := b.rdb.HDel(bg, "a", holdOf(holder).field).Err(); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			got := <-results[2]
			if got.err != nil {
				t.Fatal(got.err)
			}
			t.Logf("granted %v later", time.Since(began).Round(time.Millisecond))
			if took := time.Since(began); took > lease+15*time.Second+patience {
				t.Errorf("it waited for %v behind the dead", took)
			}
			mustRelease(t, got.lease)
			ctx, cancel := context.WithCancel(bg)
			cancel()
			_ = dying.Close(ctx)
		})
	}
}

// A waiter whose connections break when it is its turn, and come back, keeps its place.
func TestFair_ReconnectingHeadIsNotPassedOver(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	other := b.client(t)
	holder := mustTake(t, bg, other.FairLock("a"), AcquireOptions{})
	results := b.inLine(t, c, other)
	proxy.Cut()
	eventually(t, "Redis has noticed", func() bool { return len(b.rdb.PubSubChannels(bg, "*").Val()) == 1 })
	mustRelease(t, holder)
	absentees := wire.FairDeadlines("a") + ":absent"
	eventually(t, "others have seen that nobody listens", func() bool { return b.rdb.HLen(bg, absentees).Val() == 1 })
	time.Sleep(absentGrace / 3) // it is away for a moment
	proxy.Restore()
	r := await(t, "the first", results[0])
	if r.err != nil {
		t.Fatal(r.err)
	}
	if n := b.rdb.Exists(bg, absentees).Val(); n != 0 {
		t.Error("it is still taken for absent")
	}
	mustRelease(t, r.lease)
	mustRelease(t, mustGet(t, "the second", results[1]))
}

// A waiter that is only slow, whose connections stand, is not passed over before FairWaitTimeout.
func TestFair_SlowHeadIsNotPassedOver(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t)
	other := b.client(t)
	holder := mustTake(t, bg, other.FairLock("a"), AcquireOptions{})
	results := b.inLine(t, c, other)
	listened(t, c, "a")
	proxy.Stall()
	mustRelease(t, holder)
	select {
	case r := <-results[1]:
		t.Fatalf("the second has overtaken it: %v, %v", r.lease, r.err)
	case <-time.After(absentGrace + 2*absentPause): // as long as one that is dead would have
	}
	proxy.Restore()
	mustRelease(t, mustGet(t, "the first", results[0]))
	mustRelease(t, mustGet(t, "the second", results[1]))
}

// FairWaitTimeout bounds the wait for one that is silent, whatever else is known of it.
func TestFair_WaitTimeout(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c, proxy := b.proxied(t, func(o *Options) { o.FairWaitTimeout = time.Second })
	other := b.client(t, func(o *Options) { o.FairWaitTimeout = time.Second })
	holder := mustTake(t, bg, other.FairLock("a"), AcquireOptions{LeaseTime: time.Second})
	results := b.inLine(t, c, other)
	proxy.Stall()
	await(t, "the lease is over", holder.Done())
	r := mustGet(t, "the second", results[1])
	proxy.Restore()
	mustRelease(t, r)
	mustRelease(t, mustGet(t, "the first, which has queued up again", results[0]))
}

// Where those who listen to a channel cannot be counted, only FairWaitTimeout tells that a waiter is dead.
func TestFair_WhereListenersAreCounted(t *testing.T) {
	t.Parallel()
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: time.Second, WriteTimeout: time.Second})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: time.Second, WriteTimeout: time.Second})
	for _, test := range []struct {
		rdb  redis.UniversalClient
		mode PublishMode
		want time.Duration
	}{
		{single, PublishAuto, absentGrace},
		{single, PublishPlain, absentGrace},
		{single, PublishSharded, absentGrace},
		{single, PublishBoth, absentGrace},
		{cluster, PublishSharded, absentGrace},
		{cluster, PublishPlain, 0},
		{cluster, PublishBoth, 0},
	} {
		t.Cleanup(func() { _ = test.rdb.Close() })
		t.Run(fmt.Sprintf("%T %v", test.rdb, test.mode), func(t *testing.T) {
			c := newLooseClient(t, test.rdb, func(o *Options) { o.PublishMode = test.mode })
			defer c.Close(bg)
			if got := c.fair("a").Grace; got != test.want {
				t.Errorf("grace %v, want %v", got, test.want)
			}
		})
	}
}
