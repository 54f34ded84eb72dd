package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	s4             = "S4"
	s4Waiters      = 1000
	commandsSecond = "commands/s"
	pubSubConns    = "pub/sub connections"
	connections    = "connections"
	heapAWaiter    = "heap bytes/waiter"
	goroutinesMore = "goroutines beyond the callers'"
)

// s4Bytes bounds heapAWaiter by the number of names.
var s4Bytes = map[int]float64{1: 500, s4Waiters: 1000}

// waiters measures the cost of goroutines that wait for held locks: first all for one, then each
// for its own.
func (b *bench) waiters() error {
	return b.fewRounds(s4, func() error {
		for _, names := range []int{1, s4Waiters} {
			for _, contender := range inTurn(b, []string{redsyncName, rueidisLock, ours}) {
				if err := b.pardon(s4, contender, b.await(contender, names)); err != nil {
					return fmt.Errorf("%s: %w", contender, err)
				}
			}
		}
		return nil
	})
}

func namesOf(n int) string {
	if n == 1 {
		return "1000 waiters, 1 name"
	}
	return fmt.Sprintf("1000 waiters, %d names", n)
}

func (b *bench) await(contender string, names int) error {
	clients, closeAll, err := openAll(b.addr, settings{lease: time.Minute}, contender, contender)
	if err != nil {
		return err
	}
	defer closeAll()
	window := b.pick(11*time.Second, 700*time.Millisecond) // a third of the time between two of our polls
	if contender != ours {
		window /= 4 // others poll far more often, or not at all
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	name := func(i int) string { return fmt.Sprint("bench:wait:", contender, ":", i%names) }
	var holders []held
	for i := range names {
		h, err := acquireInTime(ctx, clients[0].session(name(i)))
		if err != nil {
			return err
		}
		holders = append(holders, h)
	}
	// A crowd runs first, so that what a client opens once and what the runtime keeps for
	// goroutines is not counted for the waiters.
	if err := crowd(ctx, clients[1]); err != nil {
		return err
	}

	conns, _, err := b.probe.connections()
	if err != nil {
		return err
	}
	sessions := make([]session, s4Waiters)
	for i := range sessions {
		sessions[i] = clients[1].session(name(i))
	}
	heap, goroutines := heapBytes(), runtime.NumGoroutine()
	waiting, leave := context.WithCancel(ctx)
	var wg sync.WaitGroup
	got := make(chan error, s4Waiters)
	for i := range s4Waiters {
		wg.Go(func() {
			if h, err := sessions[i].acquire(waiting); err == nil {
				got <- fmt.Errorf("a lock that is held was granted (%v)", h.release(ctx))
			}
		})
	}
	time.Sleep(b.pick(time.Second, 300*time.Millisecond)) // until all wait
	more := runtime.NumGoroutine() - goroutines - s4Waiters
	bytes := float64(heapBytes()) - float64(heap)
	before, errA := b.probe.state(0)
	time.Sleep(window)
	after, errB := b.probe.state(0)
	connsNow, pubSub, errC := b.probe.connections()
	leave()
	if err := ended(&wg); err != nil {
		return err
	}
	for _, h := range holders {
		if err := h.release(ctx); err != nil {
			return err
		}
	}
	close(got)
	for _, err := range []error{errA, errB, errC, <-got} {
		if err != nil {
			return err
		}
	}
	u := since(before, after, contender)
	variant := namesOf(names)
	b.add(s4, variant, contender, commandsSecond, float64(u.commands)/u.elapsed.Seconds())
	b.add(s4, variant, contender, connections, float64(connsNow-conns))
	b.add(s4, variant, contender, pubSubConns, float64(pubSub))
	b.add(s4, variant, contender, heapAWaiter, bytes/s4Waiters)
	b.add(s4, variant, contender, goroutinesMore, float64(more))
	return nil
}

// crowd lets as many goroutines as will wait go through a cycle at once.
func crowd(ctx context.Context, c named) error {
	var wg sync.WaitGroup
	errs := make([]error, s4Waiters)
	gate := make(chan struct{})
	for i := range s4Waiters {
		s := c.session(fmt.Sprint("bench:crowd:", c.name, ":", i))
		wg.Go(func() {
			<-gate
			errs[i] = cycle(ctx, s)
		})
	}
	close(gate)
	if err := ended(&wg); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// heapBytes returns the bytes in use on the heap, without garbage and stacks.
func heapBytes() uint64 {
	var mem runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&mem)
	return mem.HeapAlloc
}

// connections returns the number of connections Redis has, and how many of them subscribe to
// channels.
func (p probe) connections() (all, pubSub int, err error) {
	list, err := p.rdb.ClientList(context.Background()).Result()
	for line := range strings.Lines(list) {
		all++
		if !strings.Contains(line, " sub=0 psub=0 ssub=0 ") {
			pubSub++
		}
	}
	return all, pubSub, err
}
