package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func TestSentinelWithAcksHasOneHolder(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2)
	onSentinel(s).testAcks(t, 2)
}

func TestClusterWithAcksHasOneHolder(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	onCluster(cluster).testAcks(t, 1)
}

// If every replica that can be promoted has to acknowledge a grant, the death of the master does
// not give a lock to two owners: the new master has every lock that a holder was promised. That
// holds whether the master dies at once or loses its replicas first, when it promises nothing. A
// release is not acknowledged, so the new master may keep a released lock until its lease ends.
// Without acks this test finds two holders; testUnreplicated shows who they are.
func (top *topology) testAcks(t *testing.T, replicas int) {
	const name = "{one}"
	ctx, stop := context.WithCancel(bg)
	hammers := &hammers{load: load{stop: stop}, t: t}
	var clients []*Client
	for range 3 {
		clients = append(clients, top.client(t, commandTimeout(2*time.Second), pollInterval(time.Second), func(o *Options) {
			o.ReplicaAcks, o.ReplicaTimeout = replicas, time.Second/2
			o.Observer.NotAcquired = func(context.Context, Event) { hammers.refused.Add(1) }
		}))
	}
	t.Cleanup(hammers.end) // before the clients'
	for _, c := range clients {
		for range 2 {
			hammers.ending.Go(func() { hammers.run(ctx, c.Lock(name)) })
		}
	}
	for _, isCutOff := range []bool{false, true} {
		hammers.mustProgress(t)
		old := top.masterOf(t, name, nil)
		if isCutOff {
			isolateMaster(t, old)
			// Not for long, or Sentinel would take none of the replicas.
			before := hammers.attempts()
			eventually(t, "more attempts", func() bool { return hammers.attempts() > before+10 })
		}
		var kept []*Lease
		for i := range 3 {
			if lease, err := clients[0].Lock(fmt.Sprint(name, i)).Acquire(bg, AcquireOptions{LeaseTime: time.Hour}); err == nil {
				kept = append(kept, lease)
			}
		}
		old.Kill(t)
		top.masterOf(t, name, old)
		old.Restart(t) // as a replica, or there would be one too few of them
		for _, lease := range kept {
			mustStand(t, lease, clients[1])
		}
	}
	hammers.mustProgress(t)
	hammers.end()
	top.wantEmpty(t)
}

// mustStand checks that no other client gets a held lock.
func mustStand(t *testing.T, lease *Lease, other *Client) {
	t.Helper()
	eventually(t, "another client to be refused", func() bool {
		_, err := other.Lock(lease.Name()).Acquire(bg, AcquireOptions{LeaseTime: time.Minute})
		if err == nil || errors.Is(err, ErrNotReplicated) {
			t.Fatalf("another gets %s, which is held (%v)", lease.Name(), err)
		}
		return errors.Is(err, ErrNotAcquired)
	})
	_ = lease.Release(bg) // an error says that it is released in the background
}

// hammers acquire one lock again and again.
type hammers struct {
	load
	t       *testing.T
	refused atomic.Int64 // attempts

	mu     sync.Mutex
	holder *Lease // as far as it knows
}

func (h *hammers) attempts() int64 { return h.refused.Load() + h.done.Load() }

func (h *hammers) run(ctx context.Context, l *Lock) {
	for ctx.Err() == nil {
		lease, err := acquireWithRetries(ctx, l, AcquireOptions{WaitTime: time.Second, LeaseTime: 10 * time.Second})
		if err != nil {
			return
		}
		h.mu.Lock()
		if h.holder != nil && h.holder.Err() == nil {
			h.t.Errorf("two holders, %s and %s", holdOf(h.holder).wire, holdOf(lease).wire)
		}
		h.holder = lease
		h.mu.Unlock()
		for lease.Err() == nil && ctx.Err() == nil { // until Redis has said so once, from wherever
			n, err := l.HoldCount(lease.Context())
			if err == nil && n == 0 && lease.Err() == nil {
				h.t.Errorf("Redis has lost %s", holdOf(lease).wire)
			}
			if err == nil {
				break
			}
		}
		h.mu.Lock()
		if h.holder == lease {
			h.holder = nil
		}
		h.mu.Unlock()
		if lease.Release(bg) == nil {
			h.done.Add(1)
		}
		time.Sleep(pace)
	}
}
