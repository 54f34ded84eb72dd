package core

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A reader whose time-out key is gone (evicted, deleted) has it back with the next renewal. Without
// it another reader that leaves takes this one for dead, and a writer comes in.
func TestRead_TimeoutKeyIsPutBack(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"watched": 0, "fixed": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c := b.client(t, watchdogTimeout(900*time.Millisecond))
			other := b.client(t)
			l := c.ReadWriteLock("a")
			read := mustTake(t, bg, l.Read(), AcquireOptions{LeaseTime: lease})
			key := wire.ReadTimeout("a", holdOf(read).field, 1)
			if err := b.rdb.Del(bg, key).Err(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the time-out key is put back", func() bool { return b.pttl(t, key) > 0 })
			mustRelease(t, mustTake(t, bg, other.ReadWriteLock("a").Read(), AcquireOptions{}))
			wantErr(t, "a writer beside the reader", second(other.ReadWriteLock("a").Write()), ErrNotAcquired)
			wantHeld(t, read)
			mustRelease(t, read)
		})
	}
}

// Redisson's read renewal sets the time to live that all readers share, whatever others need. A
// reader of ours asserts what it needs again, with a LeaseTime as well; and after StopRenewal.
func TestRead_ReassertsWhatOthersShorten(t *testing.T) {
	t.Parallel()
	const beat = 300 * time.Millisecond
	for name, lease := range map[string]time.Duration{"watched": 0, "fixed": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			c := b.client(t, watchdogTimeout(3*beat))
			read := mustTake(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{LeaseTime: lease})
			timeout := wire.ReadTimeout("a", holdOf(read).field, 1)
			want := 2 * beat
			if lease > 0 {
				want = lease - patience
			}
			for _, keys := range [][]string{{"a"}, {"a", timeout}} { // up to 4.3.1 it sets the time-out keys of others, too
				for _, key := range keys {
					if err := b.rdb.PExpire(bg, key, 2*beat).Err(); err != nil {
						t.Fatal(err)
					}
				}
				for _, key := range keys {
					eventually(t, key+" has its time again", func() bool { return b.pttl(t, key) > want })
				}
			}
			wantHeld(t, read)
			mustRelease(t, read)
		})
	}
}

// The leases of a hold differ: Redis keeps it for the longest, and it ends when that does.
func TestRead_BeatWithSeveralLeases(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t, watchdogTimeout(900*time.Millisecond))
	l, owner := c.ReadWriteLock("a").Read(), WithOwner(bg)
	long := mustTake(t, owner, l, AcquireOptions{LeaseTime: time.Hour})
	watched := mustTake(t, owner, l, AcquireOptions{})
	if err := b.rdb.PExpire(bg, "a", 600*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has the time of the long one again", func() bool { return b.pttl(t, "a") > time.Minute })
	awaitRenewals(t, watched)
	mustRelease(t, long)
	awaitRenewals(t, watched)
	if left := watched.Remaining(); left > 900*time.Millisecond {
		t.Errorf("the lease that the watchdog keeps has %v left, at most 900ms are", left)
	}
	watched.StopRenewal()
	if n := c.Stats().Renewals; n != 1 { // as a reader, for as long as it lasts
		t.Errorf("%d renewals", n)
	}
	await(t, "it ends by itself", watched.Done())
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("%d renewals after the end", n)
	}
}

// A fixed lease of a reader that is shorter than a beat needs none.
func TestRead_ShortLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	read := mustTake(t, bg, c.ReadWriteLock("a").Read(), AcquireOptions{LeaseTime: time.Second})
	write := mustTake(t, bg, c.ReadWriteLock("b").Write(), AcquireOptions{LeaseTime: time.Hour})
	if n := c.Stats().Renewals; n != 0 {
		t.Errorf("%d renewals", n)
	}
	if err := read.Extend(bg, time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := c.Stats().Renewals; n != 1 {
		t.Errorf("%d renewals after it was extended", n)
	}
	mustRelease(t, read)
	mustRelease(t, write)
}

// What Redis does for a reader does not depend on how many others there are.
func TestRead_CostsTheSameBesideThousands(t *testing.T) {
	t.Parallel()
	work := func(t *testing.T, readers int, leases func(i int) time.Duration) map[string]int {
		b := newBundle(t)
		c := b.client(t)
		lock := c.ReadWriteLock("a").Read()
		b.addReaders(t, "a", readers, leases)
		mustRelease(t, mustTake(t, bg, lock, AcquireOptions{})) // loads the scripts
		before := b.commandStats(t)
		lease := mustTake(t, bg, lock, AcquireOptions{LeaseTime: time.Hour})
		if err := lease.Extend(bg, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, lease)
		after := b.commandStats(t)
		for cmd := range after {
			after[cmd] -= before[cmd]
		}
		b.rdb.FlushAll(bg)
		return after
	}
	for name, leases := range map[string]func(i int) time.Duration{
		"equal leases":     func(int) time.Duration { return 3 * time.Hour },
		"shorter leases":   func(int) time.Duration { return time.Minute },
		"different leases": func(i int) time.Duration { return time.Minute + time.Duration(i)*time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			few, many := work(t, 20, leases), work(t, 5000, leases)
			for cmd, n := range many {
				switch cmd {
				case "info", "config|resetstat", "command", "hello", "client|setinfo":
					continue
				case "hgetall", "hkeys", "hvals", "keys", "hscan":
					if n > 0 {
						t.Errorf("%s looks at all of them", cmd)
					}
				}
				if n > 2*few[cmd]+20 {
					t.Errorf("%s is called %d times beside 5,000 readers, %d times beside 20", cmd, n, few[cmd])
				}
			}
		})
	}
}

// addReaders puts readers into Redis that other clients have.
func (b *bundle) addReaders(t testing.TB, name string, n int, lease func(i int) time.Duration) {
	t.Helper()
	longest := time.Duration(0)
	_, err := b.rdb.Pipelined(bg, func(p redis.Pipeliner) error {
		p.HSet(bg, name, "mode", "read")
		for i := range n {
			owner := fmt.Sprint("another client:", i)
			p.HSet(bg, name, owner, "1")
			p.Set(bg, wire.ReadTimeout(name, owner, 1), "1", lease(i))
			longest = max(longest, lease(i))
		}
		for _, when := range []string{"NX", "GT"} {
			p.Do(bg, "PEXPIRE", name, longest.Milliseconds(), when)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// commandStats is how often each command was called, by scripts too.
func (b *bundle) commandStats(t testing.TB) map[string]int {
	t.Helper()
	text, err := b.rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	stats := make(map[string]int)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			cmd, values, _ := strings.Cut(rest, ":calls=")
			calls, _, _ := strings.Cut(values, ",")
			if stats[cmd], err = strconv.Atoi(calls); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
	return stats
}

// Dead readers do not keep a writer out, even if they are more than a release looks at.
func TestRead_ManyDeadReadersAreRemoved(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	c := b.client(t)
	l := c.ReadWriteLock("a")
	live := mustTake(t, bg, l.Read(), AcquireOptions{})
	b.addReaders(t, "a", 200, func(int) time.Duration { return time.Millisecond })
	if err := b.rdb.PExpire(bg, "a", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "they are dead", func() bool { return len(b.rdb.Keys(bg, "{a}:*").Val()) == 1 })
	mustRelease(t, mustTake(t, bg, l.Read(), AcquireOptions{}))
	wantHeld(t, live)
	mustRelease(t, live)
	mustRelease(t, mustTake(t, bg, l.Write(), AcquireOptions{}))
}
