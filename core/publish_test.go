package core

import (
	"context"
	"testing"
	"time"
)

// Clients whose modes have a namespace in common wake each other by message; PollInterval is too long to do it.
func TestPublishModes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		holder, waiter PublishMode
		plain, sharded bool // where the waiter listens
	}{
		"auto, auto":       {Auto, Auto, true, false},
		"plain, plain":     {Plain, Plain, true, false},
		"sharded, sharded": {Sharded, Sharded, false, true},
		"both, both":       {Both, Both, true, true},
		"both, plain":      {Both, Plain, true, false},
		"both, sharded":    {Both, Sharded, false, true},
		"plain, both":      {Plain, Both, true, true},
		"sharded, both":    {Sharded, Both, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			b := newBundle(t)
			mode := func(m PublishMode) func(*Options) {
				return func(o *Options) { o.PublishMode, o.PollInterval = m, time.Hour }
			}
			holder, waiter := b.client(t, mode(test.holder)), b.client(t, mode(test.waiter))
			t.Cleanup(func() {
				eventually(t, "no sharded channel is left", func() bool {
					return len(b.rdb.PubSubShardChannels(ctx, "*").Val()) == 0
				})
			})

			lease := mustAcquire(t, holder, "order", AcquireOptions{LeaseTime: time.Hour})
			got := make(chan error, 1)
			go func() {
				lease, err := waiter.Lock("order").Acquire(ctx, AcquireOptions{WaitTime: patience})
				if err == nil {
					err = lease.Release(ctx)
				}
				got <- err
			}()
			const channel = "redisson_lock__channel:{order}"
			eventually(t, "the waiter listens where it should", func() bool {
				return (b.rdb.PubSubNumSub(ctx, channel).Val()[channel] == 1) == test.plain &&
					(b.rdb.PubSubShardNumSub(ctx, channel).Val()[channel] == 1) == test.sharded
			})
			if err := lease.Release(ctx); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Errorf("the waiter was not woken: %v", err)
			}
		})
	}
}
