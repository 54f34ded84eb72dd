package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/redistest"
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

// With the word of every replica that can be promoted, the death of the master gives no lock to two: whatever it has confirmed to a
// holder is there on the new one. That is so when it dies in the midst of all, and when it loses its replicas first: then it
// confirms nothing. Without acks this test finds two holders; see testUnreplicated for who they are.
func (top *topology) testAcks(t *testing.T, replicas int) {
	const name = "one"
	ctx, stop := context.WithCancel(bg)
	hammers := &hammers{load: load{stop: stop}, t: t}
	t.Cleanup(hammers.end)
	var clients []*Client
	for range 3 {
		clients = append(clients, top.client(t, commandTimeout(2*time.Second), pollInterval(time.Second), func(o *Options) {
			o.ReplicaAcks, o.ReplicaTimeout = replicas, time.Second
			o.Observer.NotAcquired = hammers.refused
		}))
	}
	for _, c := range clients {
		for range 2 {
			hammers.ending.Go(func() { hammers.run(ctx, c.Lock(name)) })
		}
	}
	for _, isCutOff := range []bool{false, true} {
		hammers.flows(t)
		old := top.masterOf(t, name, nil)
		if isCutOff {
			cutOff(t, old)
			unconfirmed := hammers.unconfirmed.Load()
			eventually(t, "they go on asking", func() bool { return hammers.unconfirmed.Load() > unconfirmed+3 })
		}
		old.Kill(t)
		top.masterOf(t, name, old)
		old.Restart(t) // as a replica, or there would be one too few of them
	}
	hammers.flows(t)
	hammers.end()
	top.empty(t)
}

// hammers take one lock as often as they can.
type hammers struct {
	load
	t           *testing.T
	unconfirmed atomic.Int64 // attempts that the replicas did not confirm

	mu     sync.Mutex
	holder *Lease // as far as it knows
}

func (h *hammers) refused(_ context.Context, e Event) {
	if errors.Is(e.Err, ErrNotReplicated) {
		h.unconfirmed.Add(1)
	}
}

func (h *hammers) run(ctx context.Context, l *Lock) {
	for ctx.Err() == nil {
		lease, err := insist(ctx, l, AcquireOptions{WaitTime: time.Second, LeaseTime: 20 * time.Second})
		if err != nil {
			return
		}
		h.mu.Lock()
		if h.holder != nil && h.holder.Err() == nil {
			h.t.Errorf("two holders, %s and %s", h.holder.hold.field, lease.hold.field)
		}
		h.holder = lease
		h.mu.Unlock()
		for lease.Err() == nil { // until Redis has said so once, from wherever
			if n, err := l.HoldCount(lease.Context()); err == nil && n > 0 {
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
	}
}
