package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A state is the resource usage up to a moment.
type state struct {
	at          time.Time
	ops         int64
	clientCPU   time.Duration
	allocs      uint64
	redisCPU    time.Duration
	redisCounts map[string]int64 // calls by command, including those in scripts
}

// A usage is the difference between two states.
type usage struct {
	elapsed   time.Duration
	ops       int64
	clientCPU time.Duration
	allocs    uint64
	redisCPU  time.Duration
	commands  int64 // sent by the contender
}

func (u usage) rate() float64         { return float64(u.ops) / u.elapsed.Seconds() }
func (u usage) per(x float64) float64 { return x / float64(max(u.ops, 1)) }
func micros(d time.Duration) float64  { return float64(d.Nanoseconds()) / 1e3 }
func millis(d time.Duration) float64  { return float64(d.Nanoseconds()) / 1e6 }

// A probe measures Redis and this process.
type probe struct{ rdb *redis.Client }

func (p probe) state(ops int64) (s state, err error) {
	info, err := p.rdb.Info(context.Background(), "cpu", "commandstats").Result()
	if err != nil {
		return s, err
	}
	s = state{ops: ops, redisCounts: make(map[string]int64)}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "used_cpu_user" || name == "used_cpu_sys":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return s, fmt.Errorf("INFO cpu: %w", err)
			}
			s.redisCPU += time.Duration(seconds * 1e9)
		case strings.HasPrefix(name, "cmdstat_"):
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			if s.redisCounts[strings.TrimPrefix(name, "cmdstat_")], err = strconv.ParseInt(calls, 10, 64); err != nil {
				return s, fmt.Errorf("INFO commandstats: %w", err)
			}
		}
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s.allocs = mem.Mallocs
	if s.clientCPU, err = clientCPU(); err != nil {
		return s, err
	}
	s.at = time.Now()
	return s, nil
}

func clientCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// since returns the usage between a and b by a contender.
func since(a, b state, contender string) usage {
	u := usage{
		elapsed:   b.at.Sub(a.at),
		ops:       b.ops - a.ops,
		clientCPU: b.clientCPU - a.clientCPU,
		allocs:    b.allocs - a.allocs,
		redisCPU:  b.redisCPU - a.redisCPU,
	}
	for _, command := range commandsOf[contender] {
		u.commands += b.redisCounts[command] - a.redisCounts[command]
	}
	return u
}

// cycle acquires and releases once.
func cycle(ctx context.Context, s session) error {
	h, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	return h.release(ctx)
}

// A padded counter fills a cache line.
type padded struct {
	n atomic.Int64
	_ [56]byte
}

// together runs a function in a loop on several goroutines and measures usage within a window,
// after a warm-up of a third of it, or of 100ms if that is less.
func (p probe) together(goroutines int, window time.Duration, contender string, each func(i int) func(ctx context.Context) error) (usage, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	counts := make([]padded, goroutines)
	sum := func() (n int64) {
		for i := range counts {
			n += counts[i].n.Load()
		}
		return n
	}
	var (
		stop   atomic.Bool
		wg     sync.WaitGroup
		failed = make(chan error, 1)
	)
	runtime.GC()
	for i := range goroutines {
		do := each(i)
		wg.Go(func() {
			for !stop.Load() {
				if err := do(ctx); err != nil {
					if ctx.Err() == nil {
						select {
						case failed <- err:
						default:
						}
					}
					return
				}
				counts[i].n.Add(1)
			}
		})
	}
	time.Sleep(min(window/3, 100*time.Millisecond))
	a, errA := p.state(sum())
	time.Sleep(window)
	b, errB := p.state(sum())
	stop.Store(true)
	ending := time.AfterFunc(time.Second, cancel) // waiters left at the end give up
	defer ending.Stop()
	if err := ended(&wg); err != nil {
		return usage{}, fmt.Errorf("%s: %w", contender, err)
	}
	select {
	case err := <-failed:
		return usage{}, fmt.Errorf("%s: %w", contender, err)
	default:
	}
	return since(a, b, contender), errors.Join(errA, errB)
}

// percentile sorts the durations and returns a percentile.
func percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(p*float64(len(all))), len(all)-1)]
}
