package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
)

// open returns locks on a Redis of their own, and a function that closes both.
func open() (locks *core.Client, closeBoth func()) {
	redis, err := embedded.Start() // in production, a Redis that all processes share
	if err != nil {
		log.Fatal(err)
	}
	locks, err = core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return locks, func() {
		locks.Close(context.Background())
		redis.Close()
	}
}

// Do holds a lock while a function runs.
func ExampleDo() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := context.Background()
	err := core.Do(ctx, locks.Lock("report"), core.AcquireOptions{WaitTime: time.Second}, func(ctx context.Context) error {
		held, err := locks.Lock("report").IsHeld(ctx)
		fmt.Println("held meanwhile:", held)
		return err
	})
	locked, _ := locks.Lock("report").IsLocked(ctx)
	fmt.Println("held afterwards:", locked, err)
	// Output:
	// held meanwhile: true
	// held afterwards: false <nil>
}

// Three exports at a time, over all processes.
func ExampleClient_Semaphore() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := context.Background()
	exports := locks.Semaphore("exports", 3)
	for i := range 4 {
		permit, err := exports.Acquire(ctx, core.AcquireOptions{})
		if err != nil {
			fmt.Println("export", i, "is refused:", errors.Is(err, core.ErrNotAcquired))
			continue
		}
		defer permit.Release(ctx)
	}
	free, err := exports.Available(ctx)
	fmt.Println("free permits:", free, err)
	// Output:
	// export 3 is refused: true
	// free permits: 0 <nil>
}

// A large job takes two permits at once, or none.
func ExampleSemaphore_AcquireN() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := context.Background()
	exports := locks.Semaphore("exports", 3)
	large, err := exports.AcquireN(ctx, 2, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = exports.AcquireN(ctx, 2, core.AcquireOptions{})
	fmt.Println("a second one is refused:", errors.Is(err, core.ErrNotAcquired))
	fmt.Println(large.Release(ctx))
	// Output:
	// a second one is refused: true
	// <nil>
}

// The parts of an import count down, and the report waits for all of them.
func ExampleClient_CountDownLatch() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a part may have died
	defer cancel()
	imported := locks.CountDownLatch("imported:2026-11-28") // a new name for each round
	for range 2 {
		first, err := imported.TrySetCount(ctx, 2)
		fmt.Println("sets the count:", first, err)
	}
	for range 2 {
		go func() {
			if err := imported.CountDown(ctx); err != nil {
				log.Print(err)
			}
		}()
	}
	fmt.Println("all parts are there:", imported.Await(ctx))
	// Output:
	// sets the count: true <nil>
	// sets the count: false <nil>
	// all parts are there: <nil>
}

// The first caller does the work. Others get its record.
func ExampleClient_Once() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := context.Background()
	invoice := locks.Once("invoice:42")
	for range 2 {
		lease, record, err := invoice.Acquire(ctx, core.AcquireOptions{WaitTime: time.Second})
		switch {
		case err != nil:
			log.Fatal(err)
		case record != nil:
			fmt.Printf("already made: %s\n", record)
		default:
			fmt.Println("make it")
			if err := lease.ReleaseWith(ctx, []byte("invoice 1001"), 24*time.Hour); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// make it
	// already made: invoice 1001
}

// Waiters of a fair lock get it in the order in which they came, over all processes.
func ExampleClient_FairLock() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := context.Background()
	lease, err := locks.FairLock("seat:12").Acquire(ctx, core.AcquireOptions{WaitTime: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.Name(), lease.Release(ctx))
	// Output: seat:12 <nil>
}

// A transfer holds the locks of both accounts or of neither.
func ExampleMultiLock() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := context.Background()
	bob, err := locks.Lock("account:bob").Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	both := core.MultiLock(locks.Lock("account:alice"), locks.Lock("account:bob"))
	_, err = both.Acquire(ctx, core.AcquireOptions{})
	alice, _ := locks.Lock("account:alice").IsLocked(ctx)
	fmt.Println("refused:", errors.Is(err, core.ErrNotAcquired), "and alice is locked:", alice)
	if err := bob.Release(ctx); err != nil {
		log.Fatal(err)
	}
	lease, err := both.Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("acquired, and released:", lease.Release(ctx))
	// Output:
	// refused: true and alice is locked: false
	// acquired, and released: <nil>
}

// A majority of three independent servers decides, so one of them may be down.
func ExampleRedLock() {
	ctx := context.Background()
	var members []core.Locker
	for range 3 {
		locks, closeBoth := open()
		defer closeBoth()
		members = append(members, locks.Lock("order:42"))
	}
	lease, err := core.RedLock(members...).Acquire(ctx, core.AcquireOptions{WaitTime: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.Release(ctx))
	// Output: <nil>
}

// Contexts of one owner enter each other's locks again.
func ExampleWithOwner() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := core.WithOwner(context.Background())
	outer, err := locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer outer.Release(ctx)
	inner, err := locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer inner.Release(ctx)
	count, err := locks.Lock("order:42").HoldCount(ctx)
	fmt.Println("holds:", count, err)
	// Output: holds: 2 <nil>
}

// A job that a request leaves behind does not enter the request's lock.
func ExampleWithNewOwner() {
	locks, closeBoth := open()
	defer closeBoth()
	lease, err := locks.Lock("order:42").Acquire(context.Background(), core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	job := core.WithNewOwner(context.WithoutCancel(lease.Context()))
	_, err = locks.Lock("order:42").Acquire(job, core.AcquireOptions{})
	fmt.Println("the job has to wait:", errors.Is(err, core.ErrNotAcquired), lease.Release(job))
	// Output: the job has to wait: true <nil>
}

// A lease with a fixed time is extended while the work makes progress.
func ExampleLease_Extend() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := context.Background()
	lease, err := locks.Lock("import").Acquire(ctx, core.AcquireOptions{LeaseTime: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	if err := lease.Extend(ctx, time.Minute); err != nil {
		log.Fatal(err)
	}
	fmt.Println("more than 50s left:", lease.Remaining() > 50*time.Second)
	// Output: more than 50s left: true
}

// Work that has a context of its own ends, too, when the lock is lost.
func ExampleLease_Bind() {
	locks, closeBoth := open()
	defer closeBoth()
	background := context.Background()
	lease, err := locks.Lock("chat:7").Acquire(background, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := lease.Bind(background)
	defer cancel()
	if _, err := locks.Lock("chat:7").ForceUnlock(background); err != nil { // an operator
		log.Fatal(err)
	}
	<-ctx.Done() // when the holder hears of it
	fmt.Println(errors.Is(context.Cause(ctx), core.ErrLockLost))
	// Output: true
}

// Ping is for a readiness probe. It takes and releases a lock, with all that this needs.
func ExampleClient_Ping() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println(locks.Ping(ctx))
	// Output: <nil>
}

// Holds lists what this process holds, such as for a page of its own state.
func ExampleClient_Holds() {
	locks, closeBoth := open()
	defer closeBoth()
	ctx := context.Background()
	lease, err := locks.Lock("order:42").Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	for _, hold := range locks.Holds() {
		fmt.Println(hold.Name)
	}
	fmt.Println("waiting:", len(locks.Waits()), "lost:", len(locks.Losses()))
	// Output:
	// order:42
	// waiting: 0 lost: 0
}

// KeysOf names the keys in Redis that belong to a lock, such as the counter of its tokens.
func ExampleKeysOf() {
	fmt.Println(core.KeysOf("order:42").Tokens)
	// Output: redisson_lock_token:{order:42}
}
