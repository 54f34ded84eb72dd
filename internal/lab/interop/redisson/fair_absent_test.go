//go:build interop

package redisson

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
)

const (
	// passedOver is how soon a dead first waiter is dropped once the lock is free.
	passedOver = 15 * time.Second
	// For a slow machine; a waiter that is not dropped blocks the queue for 300s.
	slack = 30 * time.Second
)

// A fairWait is a goroutine's wait for a fair lock.
type fairWait chan *core.Lease // closed without a lease if it failed

// queueUp starts a goroutine that queues up for a fair lock as number n.
func (topo *topology) queueUp(t *testing.T, lock core.Locker, n int64) fairWait {
	t.Helper()
	got := make(fairWait, 1)
	go func() {
		defer close(got)
		l, err := lock.Acquire(context.Background(), core.AcquireOptions{WaitTime: patience, LeaseTime: lease})
		if err != nil {
			t.Error(err)
			return
		}
		got <- l
	}()
	topo.awaitQueue(t, lock.Name(), n)
	return got
}

// release waits until the goroutine has the lock, and releases it.
func (w fairWait) release(t *testing.T) {
	t.Helper()
	if l := <-w; l != nil {
		mustRelease(t, l)
	}
}

// A jvmWait is a JVM thread's wait for a fair lock.
type jvmWait struct {
	*reply
	peer         *peer
	thread, name string
}

// queueUpJVM makes a JVM thread queue up as number n, and waits until it has subscribed.
func (topo *topology) queueUpJVM(t *testing.T, p *peer, name string, n int64) jvmWait {
	t.Helper()
	w := jvmWait{peer: p, thread: newName("waiter"), name: name}
	w.reply = p.send(t, w.thread, "lock", fair.name, name, lease.Milliseconds())
	topo.awaitQueue(t, name, n)
	await(t, "the JVM to wait", func() bool { return p.ask(t, w.thread, "waits") != "no" })
	return w
}

// release waits until the thread has the lock, and releases it. It must come before a later
// goroutine.
func (w jvmWait) release(t *testing.T, later fairWait) {
	t.Helper()
	select {
	case <-w.done:
	case l := <-later:
		t.Error("the JVM was skipped")
		if l != nil {
			mustRelease(t, l)
		}
	}
	if _, err := w.peer.result(t, w.reply); err != nil {
		t.Fatal(err)
	}
	w.peer.ask(t, w.thread, "unlock", fair.name, w.name)
}

// deadHolder creates a hold of an owner that no process has, for ttl.
func (topo *topology) deadHolder(t *testing.T, name string, ttl time.Duration) {
	t.Helper()
	if err := topo.rdbs[0].HSet(t.Context(), name, "dead:1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	topo.expire(t, name, ttl)
}

func (topo *topology) expire(t *testing.T, name string, ttl time.Duration) {
	t.Helper()
	if err := topo.rdbs[0].PExpire(t.Context(), name, ttl).Err(); err != nil {
		t.Fatal(err)
	}
}

// testFairDeadJVM kills a JVM whose threads are first in a queue. We acquire the lock soon after it
// is free, whether it was released or its holder died too.
func (topo *topology) testFairDeadJVM(t *testing.T) {
	for _, released := range []bool{true, false} {
		name := newName("dead")
		t.Run(map[bool]string{true: "released", false: "expired"}[released], func(t *testing.T) {
			t.Parallel()
			lock := fair.lock(topo.clients(t), name)
			jvm := topo.newPeer(t)
			var holder *core.Lease
			if released {
				holder = mustAcquire(t, t.Context(), lock)
			} else {
				topo.deadHolder(t, name, lease)
			}
			topo.queueUpJVM(t, jvm, name, 1)
			topo.queueUpJVM(t, jvm, name, 2)
			ours := topo.queueUp(t, lock, 3)

			jvm.kill(t)
			free := time.Now()
			if released {
				mustRelease(t, holder)
			} else {
				topo.expire(t, name, time.Millisecond)
			}
			l := <-ours
			wantSoon(t, "we", free)
			if l != nil {
				mustRelease(t, l)
			}
		})
	}
}

func wantSoon(t *testing.T, who string, free time.Time) {
	t.Helper()
	took := time.Since(free).Round(time.Millisecond)
	t.Logf("%s got the lock %v after it was free", who, took)
	if took > passedOver+slack {
		t.Errorf("%s got the lock %v after it was free, want %v", who, took, passedOver)
	}
}

// testFairDeadGo kills one of our processes as the first waiter, with a JVM thread behind it and a
// goroutine behind that.
func (topo *topology) testFairDeadGo(t *testing.T) {
	name := newName("dead")
	lock := fair.lock(topo.clients(t), name)
	proxy := topo.servers[0].Proxy(t)
	dying, err := core.New(proxy.Client(t), core.Options{CommandTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	holder := mustAcquire(t, t.Context(), lock)
	died := make(chan struct{})
	go func() {
		defer close(died)
		_, _ = dying.FairLock(name).Acquire(context.Background(), core.AcquireOptions{WaitTime: core.WaitForever})
	}()
	topo.awaitQueue(t, name, 1)
	jvm := topo.queueUpJVM(t, topo.peer, name, 2)
	ours := topo.queueUp(t, lock, 3)

	proxy.Cut() // Redis gets no more of its commands
	free := time.Now()
	mustRelease(t, holder)
	jvm.release(t, ours)
	wantSoon(t, "the JVM", free)
	ours.release(t)

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = dying.Close(gone)
	<-died
}

// testFairReconnecting breaks the JVM's subscriptions again and again while it is first. It keeps
// its place.
func (topo *topology) testFairReconnecting(t *testing.T) {
	own := topo.fresh(t)
	name := newName("reconnecting")
	lock := fair.lock(own.clients(t), name)
	holder := mustAcquire(t, t.Context(), lock)
	jvm := own.queueUpJVM(t, own.peer, name, 1)
	ours := own.queueUp(t, lock, 2)

	_, deadlines := queue(name)
	broken := func() bool {
		if err := own.rdbs[0].ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		return own.rdbs[0].HLen(t.Context(), deadlines+":absent").Val() > 0
	}
	broken()
	mustRelease(t, holder)
	await(t, "Redis to record that nothing listens", broken)
	for seen := time.Now(); time.Since(seen) < 3*time.Second; broken() {
	}
	jvm.release(t, ours)
	ours.release(t)
}

// testFairFrozen stops the JVM while it is first, with its connections open. It is passed over, and
// queues up again when it goes on.
func (topo *topology) testFairFrozen(t *testing.T) {
	name := newName("frozen")
	lock := fair.lock(topo.clients(t), name)
	p := topo.newPeer(t)
	holder := mustAcquire(t, t.Context(), lock)
	jvm := topo.queueUpJVM(t, p, name, 1)
	ours := topo.queueUp(t, lock, 2)

	p.freeze(t)
	free := time.Now()
	mustRelease(t, holder)
	l := <-ours
	if l == nil {
		return
	}
	wantSoon(t, "the goroutine behind the frozen JVM", free)
	p.thaw(t)
	topo.awaitQueue(t, name, 1)
	mustRelease(t, l)
	jvm.release(t, nil)
}

// sleeper makes a JVM thread queue up behind a dead holder and wait longer than its first estimate.
// Before 3.32 the thread then stops asking and sleeps until it gets a message.
func (topo *topology) sleeper(t *testing.T, name string) jvmWait {
	t.Helper()
	const first = 10 * time.Second
	topo.deadHolder(t, name, first)
	began := time.Now()
	w := topo.queueUpJVM(t, topo.peer, name, 1)
	topo.expire(t, name, lease)
	await(t, "the JVM to ask again", func() bool {
		if topo.version.before(fairAsksAgain) {
			return topo.peer.ask(t, w.thread, "waits") == "for a message"
		}
		return time.Since(began) > first
	})
	return w
}

// testFairTakeOver: a thread that sleeps until a message gets one when its lock becomes free
// because the holder died.
func (topo *topology) testFairTakeOver(t *testing.T) {
	name := newName("taken")
	lock := fair.lock(topo.clients(t), name)
	jvm := topo.sleeper(t, name)
	ours := topo.queueUp(t, lock, 2)
	topo.expire(t, name, time.Millisecond)
	jvm.release(t, ours)
	ours.release(t)
}

// testFairDropped: a thread that sleeps until a message gets one when it is dropped from the queue.
// It queues up again.
func (topo *topology) testFairDropped(t *testing.T) {
	name := newName("dropped")
	list, deadlines := queue(name)
	lock := fair.lock(topo.clients(t), name)
	jvm := topo.sleeper(t, name)
	ours := topo.queueUp(t, lock, 2)

	rdb := topo.rdbs[0]
	before := rdb.LRange(t.Context(), list, 0, -1).Val()
	if err := rdb.ZAdd(t.Context(), deadlines, redis.Z{Score: 1, Member: before[0]}).Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "it to be behind us in the queue", func() bool {
		now := rdb.LRange(t.Context(), list, 0, -1).Val()
		return len(now) == 2 && now[0] == before[1] && now[1] == before[0]
	})
	topo.expire(t, name, time.Millisecond)
	ours.release(t)
	if _, err := jvm.peer.result(t, jvm.reply); err != nil {
		t.Fatal(err)
	}
	jvm.peer.ask(t, jvm.thread, "unlock", fair.name, name)
}
