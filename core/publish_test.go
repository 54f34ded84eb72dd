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
		"auto, auto":       {PublishAuto, PublishAuto, true, false},
		"plain, plain":     {PublishPlain, PublishPlain, true, false},
		"sharded, sharded": {PublishSharded, PublishSharded, false, true},
		"both, both":       {PublishBoth, PublishBoth, true, true},
		"both, plain":      {PublishBoth, PublishPlain, true, false},
		"both, sharded":    {PublishBoth, PublishSharded, false, true},
		"plain, both":      {PublishPlain, PublishBoth, true, true},
		"sharded, both":    {PublishSharded, PublishBoth, true, true},
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
