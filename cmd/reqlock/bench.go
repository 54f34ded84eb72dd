package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// bench is reqlock bench.
type bench struct {
	duration time.Duration
	callers  int
}

func (c *bench) flags(fs *flag.FlagSet) {
	fs.DurationVar(&c.duration, "for", 5*time.Second, "how long to measure")
	fs.IntVar(&c.callers, "callers", 1, "a `number` of callers at the same time, each with its own lock")
}

// A measurement is what bench prints. Times are of one acquire and one release together.
type measurement struct {
	RoundTrips int     `json:"round_trips"`
	Callers    int     `json:"callers"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"per_second"`
	P50        float64 `json:"p50_ms"`
	P90        float64 `json:"p90_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
}

func (c *bench) run(ctx context.Context, s *session, _ []string) error {
	switch {
	case c.callers < 1 || c.callers > 1000:
		return usageError("--callers is %d; use 1 to 1000", c.callers)
	case c.duration <= 0:
		return usageError("--for is %s; use for example 5s", c.duration)
	}
	return s.with(func(rdb *client) error {
		locks, closeLocks, err := s.locks(rdb)
		if err != nil {
			return err
		}
		defer closeLocks()
		m, err := c.measure(ctx, locks)
		if err != nil {
			return err
		}
		if err := m.print(s); err != nil {
			return err
		}
		return ctx.Err() // interrupted: the numbers are those until then
	})
}

// print prints a measurement.
func (m *measurement) print(s *session) error {
	if s.json {
		return s.print(m)
	}
	fmt.Fprintf(s.out, "%d round trips (acquire and release) of %s in %.1fs: %.0f per second\n",
		m.RoundTrips, count(int64(m.Callers), "caller"), m.Seconds, m.PerSecond)
	fmt.Fprintf(s.out, "p50 %.2fms  p90 %.2fms  p99 %.2fms  max %.2fms\n", m.P50, m.P90, m.P99, m.Max)
	return nil
}

// measure stops at the first error. If ctx ends, it returns what it has measured until then.
func (c *bench) measure(ctx context.Context, locks *core.Client) (*measurement, error) {
	until, stop := context.WithTimeout(ctx, c.duration)
	defer stop()
	run := rand.Uint64()
	times, errs := make([][]time.Duration, c.callers), make([]error, c.callers)
	begin := time.Now()
	var callers sync.WaitGroup
	for i := range c.callers {
		lock := locks.Lock(fmt.Sprintf("reqlock:bench:%016x:%d", run, i))
		callers.Go(func() {
			times[i], errs[i] = roundTrips(ctx, until.Done(), lock)
			if errs[i] != nil {
				stop()
			}
		})
	}
	callers.Wait()
	took := time.Since(begin)
	all := slices.Concat(times...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("interrupted before the first round trip was over")
	}
	slices.Sort(all)
	at := func(q float64) float64 { return ms(all[int(q*float64(len(all)-1))]) }
	return &measurement{len(all), c.callers, took.Seconds(), float64(len(all)) / took.Seconds(), at(0.5), at(0.9), at(0.99), at(1)}, nil
}

// roundTrips acquires and releases until over is closed. It finishes the last round trip, so there
// is at least one, unless ctx ends.
func roundTrips(ctx context.Context, over <-chan struct{}, lock *core.Lock) (times []time.Duration, err error) {
	for {
		begin := time.Now()
		lease, err := lock.Acquire(ctx, core.AcquireOptions{})
		if err != nil {
			if ctx.Err() != nil {
				return times, nil
			}
			return nil, err
		}
		if err := lease.Release(ctx); err != nil {
			return nil, err
		}
		times = append(times, time.Since(begin))
		select {
		case <-over:
			return times, nil
		default:
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
