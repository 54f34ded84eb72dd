//go:build unix

package core

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// BenchmarkSizing measures what docs/inside/performance.md tells: for each way to use a lock the
// commands, the bytes in both directions and the CPU time of Redis, one after the other and in a
// crowd.
func BenchmarkSizing(b *testing.B) {
	record := []byte(strings.Repeat("x", 1<<10))
	var names atomic.Int64
	next := func() string { return fmt.Sprint("orders:", names.Add(1)) }
	for _, use := range []struct {
		name string
		once func(b *testing.B, c *Client)
	}{
		{"lock", func(b *testing.B, c *Client) { cycle(b, c.Lock(next()), AcquireOptions{}) }},
		{"fenced lock", func(b *testing.B, c *Client) { cycle(b, c.FencedLock("fenced:"+next()), AcquireOptions{}) }},
		{"read lock", func(b *testing.B, c *Client) { cycle(b, c.ReadWriteLock("read:"+next()).Read(), AcquireOptions{}) }},
		{"fair lock", func(b *testing.B, c *Client) { cycle(b, c.FairLock("fair:"+next()), AcquireOptions{}) }},
		{"refused", func(b *testing.B, c *Client) {
			if _, err := c.Lock("held").Acquire(bg, AcquireOptions{}); err == nil {
				b.Error("the lock was granted twice")
			}
		}},
		{"first run", func(b *testing.B, c *Client) {
			lease, _, err := c.Once("run:"+next()).Acquire(bg, AcquireOptions{})
			if err == nil {
				err = lease.ReleaseWith(bg, record, time.Minute)
			}
			if err != nil {
				b.Error(err)
			}
		}},
		{"replay", func(b *testing.B, c *Client) {
			if _, got, err := c.Once("recorded").Acquire(bg, AcquireOptions{}); err != nil || len(got) != len(record) {
				b.Error(len(got), err)
			}
		}},
	} {
		for _, goroutines := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", use.name, goroutines), func(b *testing.B) {
				fx := newRedis(b)
				c := fx.newLocks(b)
				fx.lockAsStranger(b, 0, "held")
				mustRecord(b, mustBegin(b, c.Once("recorded"), AcquireOptions{}), string(record), time.Hour)
				before := usageOf(b, fx.rdb)
				benchmarkRounds(b, goroutines, func(int) func() { return func() { use.once(b, c) } })
				for what, n := range usageOf(b, fx.rdb) {
					b.ReportMetric((n-before[what])/float64(b.N), what)
				}
				fx.rdb.FlushDB(bg)
			})
		}
	}
}

// usageOf returns what Redis has done so far, by metric.
func usageOf(b *testing.B, rdb *redis.Client) map[string]float64 {
	b.Helper()
	info, err := rdb.Info(bg, "cpu", "stats", "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	usage := make(map[string]float64)
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		number := func(text string) float64 {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				b.Fatal(line, err)
			}
			return n
		}
		switch name {
		case "used_cpu_user", "used_cpu_sys":
			usage["redis-us/op"] += 1e6 * number(text)
		case "total_net_input_bytes", "total_net_output_bytes":
			usage["wire-B/op"] += number(text)
		case "cmdstat_eval", "cmdstat_evalsha":
			calls, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
			usage["commands/op"] += number(calls)
		}
	}
	return usage
}
