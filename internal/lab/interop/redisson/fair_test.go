//go:build interop

package redisson

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
)

// queue returns the keys of a fair lock's queue.
func queue(name string) (list, deadlines string) {
	return "redisson_lock_queue:{" + name + "}", "redisson_lock_timeout:{" + name + "}"
}

// awaitQueue waits until a fair lock has n waiters.
func (topo *topology) awaitQueue(t *testing.T, name string, n int64) {
	t.Helper()
	list, _ := queue(name)
	await(t, fmt.Sprintf("%d waiters", n), func() bool { return topo.rdbs[0].LLen(t.Context(), list).Val() == n })
}

// testFairOrder lets threads and goroutines queue up alternately. They acquire in that order.
func (topo *topology) testFairOrder(t *testing.T) {
	const turns = 8 // even ones are the JVM's
	name := newName("order")
	lock := fair.lock(topo.clients(t), name)
	holder := mustAcquire(t, t.Context(), lock)

	got := make(chan int)
	release := make(chan struct{})
	for i := range turns {
		turn := topo.turnOfGo
		if i%2 == 0 {
			turn = topo.turnOfJVM
		}
		go turn(t, lock, func() { got <- i; <-release })
		topo.awaitQueue(t, name, int64(i+1))
	}
	topo.wantTurns(t, name, turns)

	mustRelease(t, holder)
	for want := range turns {
		if i := <-got; i != want {
			t.Errorf("turn %d went to number %d of the queue", want, i)
		}
		release <- struct{}{}
	}
	list, deadlines := queue(name)
	await(t, "the keys to be gone", func() bool { return topo.rdbs[0].Exists(context.Background(), name).Val() == 0 })
	for _, key := range []string{list, deadlines} { // a multi-key command would cross slots
		if topo.rdbs[0].Exists(t.Context(), key).Val() != 0 {
			t.Errorf("%s was left behind", key)
		}
	}
}

func (topo *topology) turnOfJVM(t *testing.T, lock core.Locker, held func()) {
	thread := newName("turn")
	locked := topo.peer.send(t, thread, "lock", fair.name, lock.Name(), lease.Milliseconds())
	<-locked.done
	held()
	unlocked := topo.peer.send(t, thread, "unlock", fair.name, lock.Name())
	<-unlocked.done
	if locked.err != nil || unlocked.err != nil {
		t.Error(locked.err, unlocked.err)
	}
}

func (topo *topology) turnOfGo(t *testing.T, lock core.Locker, held func()) {
	err := core.Do(context.Background(), lock, core.AcquireOptions{WaitTime: patience, LeaseTime: lease}, func(context.Context) error {
		held()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// wantTurns checks the queue: owners of two clients alternate, in the same order as their
// deadlines.
func (topo *topology) wantTurns(t *testing.T, name string, turns int) {
	t.Helper()
	list, deadlines := queue(name)
	waiting := topo.rdbs[0].LRange(t.Context(), list, 0, -1).Val()
	scored := topo.rdbs[0].ZRange(t.Context(), deadlines, 0, -1).Val()
	if len(waiting) != turns || fmt.Sprint(waiting) != fmt.Sprint(scored) {
		t.Fatalf("the queue is %v, by deadline %v; want the same %d", waiting, scored, turns)
	}
	client := func(i int) string { id, _, _ := strings.Cut(waiting[i], ":"); return id }
	for i := range waiting {
		if client(i) != client(i%2) || client(0) == client(1) {
			t.Errorf("the queue does not alternate: %v", waiting)
			break
		}
	}
}

// testFairLeavers: when waiters of both sides leave the middle of a queue, those behind move up.
func (topo *topology) testFairLeavers(t *testing.T) {
	name := newName("leavers")
	lock := fair.lock(topo.clients(t), name)
	holder := mustAcquire(t, t.Context(), lock)

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := lock.Acquire(ctx, core.AcquireOptions{WaitTime: patience})
		left <- err
	}()
	topo.awaitQueue(t, name, 1)
	const wait = 3000 // for the next two to queue up
	leaver := topo.peer.send(t, newName("leaver"), "tryLock", fair.name, name, wait, -1)
	topo.awaitQueue(t, name, 2)
	thread := newName("last")
	last := topo.peer.send(t, thread, "lock", fair.name, name, lease.Milliseconds())
	topo.awaitQueue(t, name, 3)

	cancel()
	if err := <-left; err == nil {
		t.Error("the lock was granted to us")
	}
	if got, err := topo.peer.result(t, leaver); got != "false" || err != nil {
		t.Errorf("tryLock: %s, %v", got, err)
	}
	topo.awaitQueue(t, name, 1)
	mustRelease(t, holder)
	if _, err := topo.peer.result(t, last); err != nil {
		t.Error(err)
	}
	topo.peer.ask(t, thread, "unlock", fair.name, name)
}

// testFairCrowd: when many goroutines leave a queue together, the threads between them keep their
// order, and so does a thread that comes after them.
func (topo *topology) testFairCrowd(t *testing.T) {
	name := newName("crowd")
	lock := fair.lock(topo.clients(t), name)
	holder := mustAcquire(t, t.Context(), lock)

	ctx, cancel := context.WithCancel(t.Context())
	const goroutines = 21
	left := make(chan error, goroutines)
	var threads []jvmWait
	for i := range goroutines {
		go func() {
			_, err := lock.Acquire(ctx, core.AcquireOptions{WaitTime: patience})
			left <- err
		}()
		topo.awaitQueue(t, name, int64(i+1+len(threads)))
		if i%7 == 3 {
			threads = append(threads, topo.queueUpJVM(t, topo.peer, name, int64(i+2+len(threads))))
		}
	}
	cancel()
	for range goroutines {
		if err := <-left; err == nil {
			t.Error("the lock was granted to us")
		}
	}
	topo.awaitQueue(t, name, int64(len(threads)))
	threads = append(threads, topo.queueUpJVM(t, topo.peer, name, int64(len(threads)+1)))
	ours := topo.queueUp(t, lock, int64(len(threads)+1))
	mustRelease(t, holder)
	for _, w := range threads {
		w.release(t, ours)
	}
	ours.release(t)
}
