//go:build interop

package redisson

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
)

// testLatch counts a latch down from both sides, and has both wait for it. The last count comes from
// one side, and then from the other.
func (topo *topology) testLatch(t *testing.T) {
	for _, last := range []string{"JVM", "Go"} {
		t.Run("last counted by "+last, func(t *testing.T) {
			t.Parallel()
			name, waiter, thread := newName("latch"), newName("waiter"), newName("thread")
			c := topo.clients(t, func(o *core.Options) { o.PollInterval = 10 * time.Minute })[0] // only a message wakes it
			latch := c.CountDownLatch(name)
			set := func(n int) {
				t.Helper()
				if set, err := latch.TrySetCount(t.Context(), n); !set || err != nil {
					t.Fatalf("TrySetCount: %v, %v", set, err)
				}
			}
			count := func() {
				t.Helper()
				if err := latch.CountDown(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			topo.peer.want(t, 0, thread, "latchCount", name)
			if last == "JVM" {
				set(3)
				topo.peer.want(t, false, thread, "latchSet", name, 5)
			} else {
				topo.peer.want(t, true, thread, "latchSet", name, 3)
				if set, err := latch.TrySetCount(t.Context(), 5); set || err != nil {
					t.Errorf("TrySetCount: %v, %v", set, err)
				}
			}
			topo.peer.want(t, 3, thread, "latchCount", name)

			theirs := topo.peer.send(t, waiter, "latchAwait", name)
			theirChannels := 0
			await(t, "the JVM to listen", func() bool {
				theirChannels = topo.latchListeners(t, name)
				return theirChannels > 0
			})
			ours := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			go func() { ours <- latch.Await(ctx) }()
			await(t, "both sides to listen", func() bool { return topo.latchListeners(t, name) > theirChannels })
			topo.peer.ask(t, thread, "latchCountDown", name)
			count()
			if n, err := latch.Count(t.Context()); n != 1 || err != nil {
				t.Errorf("Count: %d, %v; want 1", n, err)
			}
			topo.peer.want(t, 1, thread, "latchCount", name)
			began := time.Now()
			if last == "JVM" {
				topo.peer.ask(t, thread, "latchCountDown", name)
			} else {
				count()
			}
			if err := <-ours; err != nil {
				t.Errorf("Await: %v", err)
			}
			if _, err := topo.peer.result(t, theirs); err != nil {
				t.Error(err)
			}
			t.Logf("both sides went on within %s", time.Since(began).Round(time.Millisecond))
			topo.peer.want(t, 0, thread, "latchCount", name)

			// A count that a JVM deletes is 0.
			await(t, "both sides to stop listening", func() bool { return topo.latchListeners(t, name) == 0 })
			set(2)
			go func() { ours <- latch.Await(ctx) }()
			await(t, "our client to listen", func() bool { return topo.latchListeners(t, name) > 0 })
			topo.peer.want(t, true, thread, "latchDelete", name)
			if err := <-ours; err != nil {
				t.Errorf("Await of a latch that the JVM has deleted: %v", err)
			}
		})
	}
	if topo.name == "cluster" {
		t.Run("braces", func(t *testing.T) {
			t.Parallel()
			_, err := topo.peer.result(t, topo.peer.send(t, newName("thread"), "latchSet", "{a}:"+newName("latch"), 1))
			if err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
				t.Errorf("a latch with braces in its name, by Redisson: %v, want CROSSSLOT", err)
			}
		})
	}
}

// latchListeners returns how many subscriptions to changes of a latch there are.
func (topo *topology) latchListeners(t *testing.T, name string) (n int) {
	t.Helper()
	channel := "redisson_countdownlatch__channel__{" + name + "}"
	for _, node := range topo.nodes {
		plain, noPlain := node.PubSubNumSub(t.Context(), channel).Result()
		sharded, noSharded := node.PubSubShardNumSub(t.Context(), channel).Result()
		if err := errors.Join(noPlain, noSharded); err != nil {
			t.Fatal(err)
		}
		n += int(plain[channel] + sharded[channel])
	}
	return n
}
