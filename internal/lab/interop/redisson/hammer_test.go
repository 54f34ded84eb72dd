//go:build interop

package redisson

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A crew is the workers of one lock kind: a number of JVM threads and goroutines.
type crew struct {
	kind kind
	size int
}

const (
	hammerRounds = 100
	// hammerLease bounds the cost of a wake-up that Redisson misses: a thread that is not asleep
	// yet when a write lock is released sleeps until that lease ends. It must also outlast a
	// machine that stalls.
	hammerLease = 15 * time.Second
)

// testHammer lets 4 threads and 4 goroutines count under one lock. Read locks add readers that
// check that the count does not change meanwhile.
func (topo *topology) testHammer(t *testing.T) {
	for _, crews := range hammers {
		if topo.without(crews[0].kind) != "" {
			continue
		}
		t.Run(crews[0].kind.name, func(t *testing.T) {
			t.Parallel()
			topo.hammer(t, crews)
		})
	}
}

func (topo *topology) hammer(t *testing.T, crews []crew) {
	name, key := newName("hammered"), newName("counter")
	if err := topo.rdbs[0].Set(t.Context(), key, 0, 0).Err(); err != nil {
		t.Fatal(err)
	}
	// Releases of a spin lock are not announced.
	locks := topo.clients(t, func(o *core.Options) { o.PollInterval = 100 * time.Millisecond })
	var replies []*reply
	var ours sync.WaitGroup
	want := 0
	for _, crew := range crews {
		lock := crew.kind.lock(locks, name)
		for range crew.size {
			replies = append(replies, topo.peer.send(t, newName("hammer"), "hammer",
				crew.kind.name, name, hammerLease.Milliseconds(), hammerRounds, key))
			ours.Go(func() {
				if err := topo.strike(lock, crew.kind.shared, key); err != nil {
					t.Error(err)
				}
			})
			if !crew.kind.shared {
				want += 2 * hammerRounds
			}
		}
	}
	ours.Wait()
	for _, r := range replies {
		if _, err := topo.peer.result(t, r); err != nil {
			t.Error(err)
		}
	}
	if got := topo.rdbs[0].Get(t.Context(), key).Val(); got != strconv.Itoa(want) {
		t.Errorf("the counter is at %s, want %d", got, want)
	}
}

// strike does the same as the JVM's hammer.
func (topo *topology) strike(lock core.Locker, shared bool, key string) error {
	opts := core.AcquireOptions{WaitTime: patience, LeaseTime: hammerLease}
	for round := range hammerRounds {
		err := core.Do(context.Background(), lock, opts, func(ctx context.Context) error {
			before, err := topo.rdbs[0].Get(ctx, key).Int()
			if err != nil {
				return err
			}
			if !shared {
				return topo.rdbs[0].Set(ctx, key, before+1, 0).Err()
			}
			after, err := topo.rdbs[0].Get(ctx, key).Int()
			if err == nil && after != before {
				err = fmt.Errorf("a write happened under a read lock: %d became %d", before, after)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}
