//go:build interop

package redisson

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
)

const (
	// Ours: a renewal every 3s, which the JVM's times must exceed.
	readersWatchdog = 9 * time.Second
	shortWatchdog   = 8 * time.Second  // the JVM's
	shortLease      = 8 * time.Second  // of a JVM thread
	readersLease    = 20 * time.Second // ours without the watchdog
)

// A sharedRead is a read lock that we hold together with a JVM thread.
type sharedRead struct {
	name, thread string
	held         *core.Lease
	fixed        bool   // it has a LeaseTime
	ending       string // of the thread's hold
	released     atomic.Bool
}

// testReaders shares read locks between our readers and JVM threads. Redisson sets the TTL of all
// readers to its own whenever it renews. No writer of either side may enter before our lease ends,
// however the thread's hold ends.
func (topo *topology) testReaders(t *testing.T) {
	for name, watchdog := range map[string]time.Duration{
		"equal watchdogs":        readersWatchdog,
		"shorter watchdog there": shortWatchdog,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jvm := topo.newPeer(t, func(o *peerOptions) { o.watchdog = watchdog })
			reads := topo.shareReads(t, jvm)
			var writers sync.WaitGroup
			topo.sendWriters(t, reads, &writers)

			topo.awaitRenewed(t, reads, watchdog)
			for _, r := range reads {
				if r.ending == "unlocked" {
					jvm.ask(t, r.thread, "unlock", read.name, r.name)
				}
			}
			jvm.kill(t)

			for _, r := range reads {
				if r.fixed {
					<-r.held.Done()
				}
			}
			for _, r := range reads {
				if !r.fixed {
					r.released.Store(true)
					mustRelease(t, r.held)
				}
			}
			writers.Wait()
		})
	}
}

// shareReads acquires the locks on both sides. On each, a second JVM thread has a lease that
// expires: before 3.44 the first thread's watchdog continues with that time, because they share a
// lock object.
func (topo *topology) shareReads(t *testing.T, jvm *peer) (reads []*sharedRead) {
	t.Helper()
	ours := topo.clients(t, func(o *core.Options) { o.WatchdogTimeout = readersWatchdog })
	for _, lease := range []time.Duration{0, readersLease} {
		for _, ending := range []string{"killed", "unlocked"} {
			r := &sharedRead{name: newName("shared"), thread: newName("reader"), fixed: lease > 0, ending: ending}
			var err error
			if r.held, err = read.lock(ours, r.name).Acquire(t.Context(), core.AcquireOptions{LeaseTime: lease}); err != nil {
				t.Fatal(err)
			}
			jvm.ask(t, r.thread, "lock", read.name, r.name, -1)
			jvm.ask(t, newName("passing"), "lock", read.name, r.name, shortLease.Milliseconds())
			reads = append(reads, r)
		}
	}
	return reads
}

// awaitRenewed waits until the JVM has shortened the TTL of every lock where that is visible.
func (topo *topology) awaitRenewed(t *testing.T, reads []*sharedRead, watchdog time.Duration) {
	t.Helper()
	seen := make(map[string]bool)
	await(t, "the JVM to renew", func() bool {
		all := true
		for _, r := range reads {
			if r.fixed && !seen[r.name] {
				seen[r.name] = topo.rdbs[0].PTTL(t.Context(), r.name).Val() <= watchdog
				all = all && seen[r.name]
			}
		}
		return all
	})
}

// sendWriters lets a writer of each side wait for each lock. They acquire it in the end, one after
// the other.
func (topo *topology) sendWriters(t *testing.T, reads []*sharedRead, writers *sync.WaitGroup) {
	t.Helper()
	ours := topo.clients(t, func(o *core.Options) { o.PollInterval = 50 * time.Millisecond })
	for _, r := range reads {
		writers.Go(func() {
			l, err := write.lock(ours, r.name).Acquire(context.Background(), core.AcquireOptions{WaitTime: patience, LeaseTime: lease})
			r.wantOver(t, "a writer of ours")
			if err == nil {
				err = l.Release(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
		})
		writers.Go(func() {
			thread := newName("writer")
			for {
				got, err := topo.peer.result(t, topo.peer.send(t, thread, "tryLock", write.name, r.name, 0, lease.Milliseconds()))
				if err != nil {
					t.Error(err)
					return
				}
				if got == "true" {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			r.wantOver(t, "a writer of the JVM")
			if _, err := topo.peer.result(t, topo.peer.send(t, thread, "unlock", write.name, r.name)); err != nil {
				t.Error(err)
			}
		})
	}
}

func (r *sharedRead) wantOver(t *testing.T, who string) {
	t.Helper()
	if left := r.held.Remaining(); left > 0 && !r.released.Load() {
		t.Errorf("%s entered beside our reader, whose lease has %v left (fixed: %v); the JVM's reader: %s", who, left, r.fixed, r.ending)
	}
}
