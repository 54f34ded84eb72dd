package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
)

// One owner holds a lock at a time. Its context carries the ownership: a call with it enters the
// lock again.
func Example() {
	redis, err := embedded.Start() // in production, a Redis that all processes share
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	lock := locks.Lock("order:42")
	lease, err := lock.Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	_, err = lock.Acquire(ctx, core.AcquireOptions{}) // WaitTime 0: do not wait
	fmt.Println("another owner is refused:", errors.Is(err, core.ErrNotAcquired))

	inner, err := lock.Acquire(lease.Context(), core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the owner enters again:", inner.Err() == nil)

	for _, l := range []*core.Lease{inner, lease} {
		if err := l.Release(ctx); err != nil {
			log.Fatal(err)
		}
		locked, err := lock.IsLocked(ctx)
		fmt.Println("locked after a release:", locked, err)
	}
	// Output:
	// another owner is refused: true
	// the owner enters again: true
	// locked after a release: true <nil>
	// locked after a release: false <nil>
}

// Many readers hold the read side at the same time; the write side excludes them all.
func ExampleClient_ReadWriteLock() {
	redis, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	catalog := locks.ReadWriteLock("catalog")
	for range 2 {
		reader, err := catalog.Read().Acquire(ctx, core.AcquireOptions{})
		if err != nil {
			log.Fatal(err)
		}
		defer reader.Release(ctx)
		fmt.Println("reading")
	}
	_, err = catalog.Write().Acquire(ctx, core.AcquireOptions{})
	fmt.Println("a writer is refused:", errors.Is(err, core.ErrNotAcquired))
	// Output:
	// reading
	// reading
	// a writer is refused: true
}

// One of two processes sends the report; the other waits, and runs when the first is done.
func ExampleRunWhileHeld() {
	redis, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	ctx := context.Background()
	running := 0
	var processes sync.WaitGroup
	for range 2 {
		processes.Go(func() {
			locks, err := core.New(redis.Client(), core.Options{})
			if err != nil {
				log.Fatal(err)
			}
			defer locks.Close(ctx)
			err = core.RunWhileHeld(ctx, locks.Lock("reports"), func(ctx context.Context) error {
				running++
				fmt.Println("running:", running)
				running--
				return ctx.Err() // it would have ended if the lock had been lost
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	processes.Wait()
	// Output:
	// running: 1
	// running: 1
}

// An operator's tool frees a lock. The holder's log says who did, and why.
func ExampleWithReason() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		panic(err)
	}
	ctx := core.WithReason(context.Background(), "ann@ops-1", "ticket 42")
	if freed, err := locks.Lock("order:42").ForceUnlock(ctx); err == nil && freed {
		fmt.Println("freed")
	}
}
