package core

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/redistest"
)

// With the word of every replica that can be promoted, the death of the master gives no lock to two: whatever it has confirmed to a
// holder is there on the new one. A master that has lost its replicas before it dies confirms nothing. Without acks this test
// finds two holders.
func TestSentinelWithAcksHasOneHolder(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 2)
	top := onSentinel(s)
	ctx, stop := context.WithCancel(bg)
	load := &load{stop: stop}
	t.Cleanup(load.end)

	var mu sync.Mutex
	var holder *Lease
	for range 3 {
		c := top.client(t, commandTimeout(2*time.Second), pollInterval(time.Second), func(o *Options) { o.ReplicaAcks, o.ReplicaTimeout = 2, time.Second })
		for range 2 {
			load.ending.Go(func() {
				for ctx.Err() == nil {
					lease, err := insist(ctx, c.Lock("one"), AcquireOptions{WaitTime: time.Second, LeaseTime: 20 * time.Second})
					if err != nil {
						return
					}
					mu.Lock()
					if holder != nil && holder.Err() == nil {
						t.Errorf("two holders, %s and %s", holder.hold.field, lease.hold.field)
					}
					holder = lease
					mu.Unlock()
					for lease.Err() == nil { // until Redis has said so once, from wherever
						if n, err := c.Lock("one").HoldCount(lease.Context()); err == nil && n > 0 {
							break
						}
					}
					mu.Lock()
					if holder == lease {
						holder = nil
					}
					mu.Unlock()
					if lease.Release(bg) == nil {
						load.done.Add(1)
					}
				}
			})
		}
	}
	load.flows(t)
	old := s.AwaitMaster(t, nil)
	cutOff(t, old)
	rdb := old.Client(t)
	asked := 0
	eventually(t, "they go on asking", func() bool {
		asked++
		return rdb.Ping(bg).Err() == nil && asked > 200
	})
	old.Kill(t)
	s.AwaitMaster(t, old)
	old.Restart(t) // as a replica, or there would be one too few of them
	load.flows(t)
	load.end()
	top.empty(t)
}
