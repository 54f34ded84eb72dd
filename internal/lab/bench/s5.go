package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	s5            = "S5"
	s5Locks       = 10000
	heldLocks     = "10000 locks, lease 10s"
	goroutineLock = "goroutines/lock"
	bytesLock     = "bytes/lock"
	pingP99       = "PING p99, ms"
	clientPercent = "client CPU, %"
	redisPercent  = "Redis CPU, %"
	keysACommand  = "renewals/command"
	busiestTenth  = "busiest tenth, share"
	noLocks       = "no locks" // PING on an idle Redis
	pingPause     = 5 * time.Millisecond
)

// keep measures the cost of holding many locks for long.
func (b *bench) keep() error {
	lease := b.pick(10*time.Second, 5*time.Second) // outlasts a machine that stalls for two seconds
	return b.fewRounds(s5, func() error {
		for _, contender := range inTurn(b, []string{noLocks, rueidisLock, ours}) {
			var err error
			if contender == noLocks {
				err = b.pingAlone(lease / 2)
			} else {
				err = b.pardon(s5, contender, b.hold(contender, lease))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", contender, err)
			}
		}
		return nil
	})
}

// pingAlone pings while no lock is held: with locks, PING cannot be faster.
func (b *bench) pingAlone(length time.Duration) error {
	pinger, err := startPinger(b.addr, length)
	if err != nil {
		return err
	}
	pings, err := pinger.pings()
	if err != nil {
		return err
	}
	b.add(s5, heldLocks, noLocks, pingP99, millis(percentile(pings, 0.99)))
	return nil
}

func (b *bench) hold(contender string, lease time.Duration) error {
	clients, closeAll, err := openAll(b.addr, settings{lease: lease}, contender)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx := context.Background()
	// Warm up: the runtime gets its goroutines, and the client its connections.
	if _, err := acquireAll(ctx, clients[0], "bench:warm:", 200); err != nil {
		return err
	}
	goroutines, bytes := runtime.NumGoroutine(), heapAndStacks()
	holders, err := acquireAll(ctx, clients[0], "bench:keep:", s5Locks)
	if err != nil {
		return err
	}
	goroutines = runtime.NumGoroutine() - goroutines
	bytes = heapAndStacks() - bytes

	pings, rate, u, err := b.watch(contender, lease)
	errs := []error{err}
	errs = append(errs, releaseAll(ctx, holders))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	b.add(s5, heldLocks, contender, goroutineLock, float64(goroutines)/s5Locks)
	b.add(s5, heldLocks, contender, bytesLock, float64(bytes)/s5Locks)
	b.add(s5, heldLocks, contender, pingP99, millis(percentile(pings, 0.99)))
	b.add(s5, heldLocks, contender, clientPercent, 100*u.clientCPU.Seconds()/u.elapsed.Seconds())
	b.add(s5, heldLocks, contender, redisPercent, 100*u.redisCPU.Seconds()/u.elapsed.Seconds())
	b.add(s5, heldLocks, contender, commandsSecond, float64(u.commands)/u.elapsed.Seconds())
	b.add(s5, heldLocks, contender, keysACommand, float64(rate.total)/float64(max(u.commands, 1)))
	b.add(s5, heldLocks, contender, busiestTenth, float64(rate.busiest)/s5Locks)
	return nil
}

// A renewalRate counts renewed keys: in total, and in the busiest tenth of a renewal interval,
// which is a third of the lease.
type renewalRate struct{ total, busiest int64 }

// watch measures while another process pings Redis, so that pings do not count for the contender.
func (b *bench) watch(contender string, lease time.Duration) (pings []time.Duration, rate renewalRate, u usage, err error) {
	length := lease * 6 / 5
	pinger, err := startPinger(b.addr, length)
	if err != nil {
		return nil, rate, u, err
	}
	before, err := b.probe.state(0)
	last := before
	for end := time.Now().Add(length); err == nil && time.Now().Before(end); {
		time.Sleep(lease / 30)
		var now state
		if now, err = b.probe.state(0); err == nil {
			rate.busiest = max(rate.busiest, renewalsBetween(last, now))
			last = now
		}
	}
	pings, pingErr := pinger.pings()
	rate.total = renewalsBetween(before, last)
	return pings, rate, since(before, last, contender), errors.Join(err, pingErr)
}

func startPinger(addr string, length time.Duration) (*child, error) {
	return startChild("ping", addr, length.String())
}

func (c *child) pings() (pings []time.Duration, err error) { return pings, c.wait(&pings) }

// pingFor is the child's work: it pings Redis, rarely enough not to load it.
func pingFor(addr string, length time.Duration) (pings []time.Duration, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	ctx := context.Background()
	if err := rdb.Ping(ctx).Err(); err != nil { // connects before the measurement
		return nil, err
	}
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(pingPause) {
		began := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return nil, err
		}
		pings = append(pings, time.Since(began))
	}
	return pings, nil
}

// renewalsBetween counts the commands that set a TTL.
func renewalsBetween(a, b state) (n int64) {
	for _, command := range []string{"pexpire", "pexpireat"} {
		n += b.redisCounts[command] - a.redisCounts[command]
	}
	return n
}

const atOnce = 64

// acquireAll acquires locks with a prefix on several goroutines. It releases them again for a
// warm-up.
func acquireAll(ctx context.Context, c client, prefix string, n int) ([]held, error) {
	holders := make([]held, n)
	err := inParallel(func(worker int) error {
		for i := worker; i < n; i += atOnce {
			var err error
			if holders[i], err = c.session(fmt.Sprint(prefix, i)).acquire(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && prefix == "bench:warm:" {
		err = releaseAll(ctx, holders)
	}
	return holders, err
}

func releaseAll(ctx context.Context, holders []held) error {
	return inParallel(func(worker int) error {
		for i := worker; i < len(holders); i += atOnce {
			if err := holders[i].release(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func inParallel(do func(worker int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, atOnce)
	for i := range atOnce {
		wg.Go(func() { errs[i] = do(i) })
	}
	if err := ended(&wg); err != nil {
		return err
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}

// heapAndStacks returns the bytes in use, without garbage.
func heapAndStacks() int64 {
	var mem runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&mem)
	return int64(mem.HeapAlloc + mem.StackInuse)
}
