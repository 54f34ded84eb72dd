package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	s2            = "S2"
	s2Two         = "S2, two processes"
	s2Goroutines  = 64
	s2Hold        = time.Millisecond
	waitP50       = "waiting p50, ms"
	waitP99       = "waiting p99, ms"
	waitMean      = "waiting mean, ms"
	fewest        = "fewest a goroutine"
	most          = "most a goroutine"
	holdMillis    = "hold, ms"
	roundTrip     = "round trip, ms"
	leastShare    = "smallest share"
	acquisitions  = "acquisitions/s"
	commandsEach  = "commands/acquisition"
	twoProcesses  = "two processes, 64 goroutines each"
	shareInterval = 100 * time.Millisecond
)

// contended measures one lock that all goroutines want.
func (b *bench) contended() error {
	names := []string{fifo, redsyncName, redislockLn, rueidisLock, ours}
	clients, closeAll, err := openAll(b.addr, settings{lease: 30 * time.Second}, names...)
	if err != nil {
		return err
	}
	defer closeAll()
	return b.rounds(s2, func() error {
		for _, hold := range []time.Duration{s2Hold, 0} {
			for _, c := range inTurn(b, clients) {
				err := b.fight(c, contest{s2, holdOf(hold), s2Goroutines, hold}, b.pick(2500*time.Millisecond, 300*time.Millisecond))
				if err := b.pardon(s2, c.name, err); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
		}
		return nil
	})
}

func holdOf(d time.Duration) string { return fmt.Sprint("hold ", d) }

// A fighter is one goroutine that acquires the lock repeatedly.
type fighter struct {
	waits []time.Duration // of successful acquires
	held  time.Duration   // in total
}

// A contest is what goroutines of one process compete for.
type contest struct {
	scenario, variant string
	goroutines        int
	hold              time.Duration
}

// fight lets goroutines compete for a lock, or for permits, and adds the results.
func (b *bench) fight(c named, of contest, window time.Duration) error {
	scenario, variant, hold := of.scenario, of.variant, of.hold
	trip, err := b.probe.roundTrip()
	if err != nil {
		return err
	}
	name := "bench:hot"
	fighters := make([]fighter, of.goroutines)
	sessions := make([]session, of.goroutines)
	for i := range sessions {
		sessions[i] = c.session(name)
	}
	var (
		wg                sync.WaitGroup
		counting, stopped atomic.Bool
		failed            = make(chan error, of.goroutines)
	)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runtime.GC()
	for i := range fighters {
		wg.Go(func() {
			f := &fighters[i]
			for !stopped.Load() {
				began := time.Now()
				h, err := sessions[i].acquire(ctx)
				if err != nil {
					if ctx.Err() == nil {
						failed <- err
					}
					return
				}
				got := time.Now()
				if hold > 0 {
					time.Sleep(hold)
				}
				if counting.Load() && !stopped.Load() {
					f.waits = append(f.waits, got.Sub(began))
					f.held += time.Since(got)
				}
				if err := h.release(context.Background()); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	// The first turns are warm-up: their waits are shorter than those of a full queue.
	time.Sleep(200 * time.Millisecond)
	before, errA := b.probe.state(0)
	counting.Store(true)
	time.Sleep(window)
	stopped.Store(true)
	after, errB := b.probe.state(0)
	cancel()
	if err := ended(&wg); err != nil {
		return err
	}
	close(failed)
	if err := errors.Join(errA, errB, <-failed); err != nil {
		return err
	}

	var all []time.Duration
	var held time.Duration
	var counts []int
	for _, f := range fighters {
		all = append(all, f.waits...)
		held += f.held
		counts = append(counts, len(f.waits))
	}
	u := since(before, after, c.name)
	u.ops = float64(len(all))
	b.add(scenario, variant, c.name, acquisitions, u.rate())
	b.add(scenario, variant, c.name, waitP50, millis(percentile(all, 0.5)))
	b.add(scenario, variant, c.name, waitP99, millis(percentile(all, 0.99)))
	b.add(scenario, variant, c.name, waitMean, millis(mean(all)))
	b.add(scenario, variant, c.name, commandsEach, u.per(float64(u.commands)))
	b.add(scenario, variant, c.name, fewest, float64(slices.Min(counts)))
	b.add(scenario, variant, c.name, most, float64(slices.Max(counts)))
	b.add(scenario, variant, c.name, holdMillis, u.per(millis(held)))
	b.add(scenario, variant, c.name, roundTrip, millis(trip))
	return nil
}

func mean(all []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(max(1, len(all)))
}

// roundTrip returns the median of some round trips, each after a pause as long as the hold, as
// between a lock's commands. A connection that never idles is faster.
func (p probe) roundTrip() (time.Duration, error) {
	trips := make([]time.Duration, 50)
	for i := range trips {
		time.Sleep(s2Hold)
		began := time.Now()
		if err := p.rdb.Ping(context.Background()).Err(); err != nil {
			return 0, err
		}
		trips[i] = time.Since(began)
	}
	return percentile(trips, 0.5), nil
}

// shared lets a second Go process compete for the lock and measures both shares.
func (b *bench) shared() error {
	return b.fewRounds(s2Two, func() error {
		// The windows slide.
		return b.share(ours, b.pick(15*time.Second, 2*time.Second), b.pick(10*time.Second, time.Second))
	})
}

func (b *bench) share(name string, length, window time.Duration) error {
	start := time.Now().Add(time.Second)
	child, err := startChild("fight", b.addr, name, fmt.Sprint(start.UnixMilli()), length.String())
	if err != nil {
		return err
	}
	mine, err := fightFor(b.addr, name, start, length)
	theirs, childErr := child.counts()
	if err := errors.Join(err, childErr); err != nil {
		return err
	}
	if len(mine) != len(theirs) {
		return fmt.Errorf("%d intervals here, %d there", len(mine), len(theirs))
	}
	least, total := 0.5, 0
	n := int(window / shareInterval)
	for i := range len(mine) - n + 1 {
		here, there := sum(mine[i:i+n]), sum(theirs[i:i+n])
		least = min(least, float64(min(here, there))/float64(max(here+there, 1)))
	}
	total = sum(mine) + sum(theirs)
	b.add(s2Two, twoProcesses, name, leastShare, least)
	b.add(s2Two, twoProcesses, name, acquisitions, float64(total)/length.Seconds())
	return nil
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// fightFor lets goroutines of this process compete for the lock, hold it for 1 ms, and counts
// acquisitions per interval from start on.
func fightFor(addr, name string, start time.Time, length time.Duration) ([]int, error) {
	c, err := contenders[name].open(addr, settings{lease: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	counts := make([]atomic.Int64, length/shareInterval)
	var wg sync.WaitGroup
	failed := make(chan error, s2Goroutines)
	time.Sleep(time.Until(start.Add(-200 * time.Millisecond)))
	for range s2Goroutines {
		s := c.session("bench:shared")
		wg.Go(func() {
			for {
				h, err := s.acquire(ctx)
				if err != nil {
					if ctx.Err() == nil {
						failed <- err
					}
					return
				}
				if since := time.Since(start); since >= 0 && int(since/shareInterval) < len(counts) {
					counts[since/shareInterval].Add(1)
				}
				time.Sleep(s2Hold)
				if err := h.release(context.Background()); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	time.Sleep(time.Until(start.Add(length)))
	cancel()
	if err := ended(&wg); err != nil {
		return nil, err
	}
	close(failed)
	plain := make([]int, len(counts))
	for i := range counts {
		plain[i] = int(counts[i].Load())
	}
	return plain, <-failed
}
