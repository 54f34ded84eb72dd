//go:build unix

package core

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// BenchmarkUncontended acquires and releases a lock that no one else wants, and, for comparison,
// sends the two commands by hand, one at a time: the floor for few goroutines.
func BenchmarkUncontended(b *testing.B) {
	for _, goroutines := range []int{1, 2, 4, 16, 64, 256, 1024, 4096} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			c := newRedis(b).newLocks(b)
			benchmarkRounds(b, goroutines, func(i int) func() {
				lock := c.Lock(fmt.Sprint("bench:", i))
				return func() { cycle(b, lock, AcquireOptions{}) }
			})
		})
		b.Run(fmt.Sprintf("by hand/goroutines=%d", goroutines), func(b *testing.B) {
			fx := newRedis(b)
			rdb := fx.srv.Client(b)
			for _, s := range []*lua.Script{acquireScript, releaseScript} {
				if err := rdb.ScriptLoad(bg, s.Source).Err(); err != nil {
					b.Fatal(err)
				}
			}
			benchmarkRounds(b, goroutines, func(i int) func() {
				key, channel := fmt.Sprint("bench:", i), fmt.Sprint("redisson_lock__channel:{bench:", i, "}")
				return func() {
					if n, err := rdb.EvalSha(bg, acquireScript.SHA, []string{key}, "me", 30000).Int(); n != 1 || err != nil {
						b.Error(n, err)
					}
					if n, err := rdb.EvalSha(bg, releaseScript.SHA, []string{key}, "me", channel, "0", "PUBLISH").Int(); n != 1 || err != nil {
						b.Error(n, err)
					}
				}
			})
		})
	}
}

// BenchmarkOnce runs once and leaves a record of 1 KiB, beside the plain cycle that it replaces,
// and replays a record.
func BenchmarkOnce(b *testing.B) {
	record := make([]byte, 1<<10)
	for _, goroutines := range []int{1, 64} {
		name := func(what string) string { return fmt.Sprintf("%s/goroutines=%d", what, goroutines) }
		b.Run(name("plain"), func(b *testing.B) {
			c := newRedis(b).newLocks(b)
			benchmarkRounds(b, goroutines, func(i int) func() {
				lock := c.Lock(fmt.Sprint("bench:", i))
				return func() { cycle(b, lock, AcquireOptions{}) }
			})
		})
		for _, marker := range []bool{false, true} {
			what := "run"
			if marker {
				what = "run with a marker"
			}
			b.Run(name(what), func(b *testing.B) {
				fx := newRedis(b)
				c := fx.newLocks(b)
				var run atomic.Int64
				benchmarkRounds(b, goroutines, func(int) func() {
					return func() {
						once := c.Once(fmt.Sprint("bench:", run.Add(1)))
						if marker {
							once = once.WithMarker(running, time.Minute)
						}
						lease, _, err := once.Acquire(bg, AcquireOptions{})
						if err == nil {
							err = lease.ReleaseWith(bg, record, time.Minute)
						}
						if err != nil {
							b.Error(err)
						}
					}
				})
				fx.rdb.FlushDB(bg)
			})
		}
		b.Run(name("replay"), func(b *testing.B) {
			fx := newRedis(b)
			c := fx.newLocks(b)
			mustRecord(b, mustBegin(b, c.Once("bench"), AcquireOptions{}), string(record), time.Hour)
			benchmarkRounds(b, goroutines, func(int) func() {
				return func() {
					if _, got, err := c.Once("bench").Acquire(bg, AcquireOptions{}); err != nil || len(got) != len(record) {
						b.Error(len(got), err)
					}
				}
			})
			fx.rdb.FlushDB(bg)
		})
	}
}

// BenchmarkGuest enters a lock that another client holds as a guest, and leaves it, with a new token for
// each round. Beside it: a re-entry of the own lock, which sends the same number of commands.
func BenchmarkGuest(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("re-entry/goroutines=%d", goroutines), func(b *testing.B) {
			c := newRedis(b).newLocks(b)
			benchmarkRounds(b, goroutines, func(i int) func() {
				lock := c.Lock(fmt.Sprint("bench:", i))
				lease := mustAcquire(b, bg, lock, AcquireOptions{})
				b.Cleanup(func() { mustRelease(b, lease) })
				ctx := lease.Context()
				return func() { mustRelease(b, mustAcquire(b, ctx, lock, AcquireOptions{})) }
			})
		})
		b.Run(fmt.Sprintf("guest/goroutines=%d", goroutines), func(b *testing.B) {
			fx := newRedis(b)
			host, guest := fx.newLocks(b, service(b, "a")), fx.newLocks(b, service(b, "b"))
			benchmarkRounds(b, goroutines, func(i int) func() {
				lock := guest.Lock(fmt.Sprint("bench:", i))
				lease := mustAcquire(b, bg, host.Lock(lock.Name()), AcquireOptions{})
				b.Cleanup(func() { mustRelease(b, lease) })
				return func() { mustRelease(b, mustAcquire(b, delegated(b, lease, "b"), lock, AcquireOptions{})) }
			})
		})
	}
}

// benchmarkRounds runs b.N rounds on a number of goroutines; each returns the round of one
// goroutine. cpu-ns/op is the CPU time of this process per round, without Redis.
func benchmarkRounds(b *testing.B, goroutines int, each func(i int) func()) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	before := cpuTime(b)
	b.ResetTimer()
	for i := range goroutines {
		wg.Go(func() {
			for round := each(i); left.Add(-1) >= 0; {
				round()
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkContended has all goroutines of one process take the same lock.
func BenchmarkContended(b *testing.B) {
	fx := newRedis(b)
	lock := fx.newLocks(b).Lock("bench")
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			cycle(b, lock, forever)
		}
	})
}

// BenchmarkTwoClients passes a lock back and forth between two clients.
func BenchmarkTwoClients(b *testing.B) {
	fx := newRedis(b)
	locks := []*Lock{fx.newLocks(b).Lock("bench"), fx.newLocks(b).Lock("bench")}
	lease, err := locks[0].Acquire(bg, AcquireOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		next := make(chan *Lease)
		go func() {
			got, err := locks[(i+1)%2].Acquire(bg, forever)
			if err != nil {
				b.Error(err)
			}
			next <- got
		}()
		if err := lease.Release(bg); err != nil {
			b.Fatal(err)
		}
		if lease = <-next; lease == nil {
			return
		}
	}
	if err := lease.Release(bg); err != nil {
		b.Fatal(err)
	}
}

func cycle(b *testing.B, lock *Lock, opts AcquireOptions) {
	lease, err := lock.Acquire(bg, opts)
	if err != nil {
		b.Error(err)
		return
	}
	if err := lease.Release(bg); err != nil {
		b.Error(err)
	}
}

// BenchmarkReadPair acquires and releases a read lock beside other readers of this process or of
// another one.
func BenchmarkReadPair(b *testing.B) {
	for _, readers := range []int{0, 1000, 5000} {
		for _, where := range []string{"here", "elsewhere"} {
			b.Run(fmt.Sprint(readers, " readers ", where), func(b *testing.B) {
				fx := newRedis(b)
				c := newUncheckedLocks(b, fx.srv.Client(b))
				l := c.ReadWriteLock("a").Read()
				if where == "elsewhere" && readers > 0 {
					fx.addReaders(b, "a", readers, func(int) time.Duration { return time.Hour })
				}
				for range readers {
					if where == "here" {
						mustAcquire(b, bg, l, AcquireOptions{LeaseTime: time.Hour})
					}
				}
				for b.Loop() {
					mustRelease(b, mustAcquire(b, bg, l, AcquireOptions{}))
				}
				b.StopTimer()
				ctx, cancel := context.WithCancel(bg)
				cancel()
				_ = c.Close(ctx)
			})
		}
	}
}
