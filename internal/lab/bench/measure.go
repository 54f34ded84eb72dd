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
	ops         float64
	clientCPU   time.Duration
	allocs      uint64
	redisCPU    time.Duration
	redisCounts map[string]int64 // calls by command, including those in scripts
	redisBytes  int64            // received and sent
}

// A usage is the difference between two states.
type usage struct {
	elapsed   time.Duration
	ops       float64
	took      []time.Duration // by each cycle
	clientCPU time.Duration
	allocs    uint64
	redisCPU  time.Duration
	commands  int64 // sent by the contender
	bytes     int64 // of commands and replies
}

func (u usage) rate() float64         { return u.ops / u.elapsed.Seconds() }
func (u usage) per(x float64) float64 { return x / max(u.ops, 1) }
func micros(d time.Duration) float64  { return float64(d.Nanoseconds()) / 1e3 }
func millis(d time.Duration) float64  { return float64(d.Nanoseconds()) / 1e6 }

// A probe measures Redis and this process.
type probe struct{ rdb *redis.Client }

func (p probe) state(ops float64) (s state, err error) {
	info, err := p.rdb.Info(context.Background(), "cpu", "stats", "commandstats").Result()
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
		case name == "total_net_input_bytes" || name == "total_net_output_bytes":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return s, fmt.Errorf("INFO stats: %w", err)
			}
			s.redisBytes += n
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
		bytes:     b.redisBytes - a.redisBytes,
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

// A window is the time that is measured.
type window struct{ from, until time.Time }

// A runner is a goroutine that runs cycles, and counts those in a window.
type runner struct {
	cycles float64 // of the first and the last one only the part within the window
	took   []time.Duration
	_      [64]byte // a cache line between runners
}

// count adds a cycle, and reports whether it is the last one.
func (r *runner) count(w window, began, ended time.Time) (last bool) {
	from, until := began, ended
	if from.Before(w.from) {
		from = w.from
	}
	if until.After(w.until) {
		until = w.until
	}
	if within := until.Sub(from); within > 0 {
		r.cycles += float64(within) / float64(ended.Sub(began))
		r.took = append(r.took, ended.Sub(began))
	}
	return !ended.Before(w.until)
}

// together runs a function in a loop on several goroutines and measures usage within a window. It
// begins when each of them has run it once, which dials, and after a third of the window or 100ms
// if that is less.
func (p probe) together(goroutines int, length time.Duration, contender string, each func(i int) func(ctx context.Context) error) (usage, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var (
		runners  = make([]runner, goroutines)
		measured atomic.Pointer[window]
		warm, wg sync.WaitGroup
		failed   = make(chan error, goroutines)
	)
	runtime.GC()
	warm.Add(goroutines)
	for i := range runners {
		do, r := each(i), &runners[i]
		r.took = make([]time.Duration, 0, 64)
		wg.Go(func() {
			err := do(ctx)
			warm.Done()
			for last := false; err == nil && !last; {
				began := time.Now()
				if err = do(ctx); err != nil {
					break
				}
				if w := measured.Load(); w != nil {
					last = r.count(*w, began, time.Now())
				}
			}
			if err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	if err := ended(&warm); err != nil {
		return usage{}, fmt.Errorf("%s: %w", contender, err)
	}
	time.Sleep(min(length/3, 100*time.Millisecond))
	a, errA := p.state(0)
	w := window{a.at, a.at.Add(length)}
	measured.Store(&w)
	time.Sleep(time.Until(w.until))
	b, errB := p.state(0)
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
	u := since(a, b, contender)
	u.elapsed = length
	for i := range runners {
		u.ops += runners[i].cycles
		u.took = append(u.took, runners[i].took...)
	}
	return u, errors.Join(errA, errB)
}

// percentile sorts the durations and returns a percentile.
func percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(p*float64(len(all))), len(all)-1)]
}
