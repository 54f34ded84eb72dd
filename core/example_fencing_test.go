package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
)

var errStale = errors.New("stale token: another holder has had the lock since")

// An account is protected by the lock. It helps: it remembers the greatest token that it has seen,
// and refuses a write with a smaller one. A database does the same with a column and a condition:
// UPDATE ... WHERE token <= $1.
type account struct {
	mu      sync.Mutex
	token   uint64
	balance int
}

func (a *account) write(token uint64, balance int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.token {
		return errStale
	}
	a.token, a.balance = token, balance
	return nil
}

// A holder that pauses for longer than its lease, and then goes on as if nothing had happened, does
// no harm: the account has seen a greater token by then.
func ExampleLease_Token() {
	server, err := embedded.Start() // in production, a Redis that all processes share
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	locks, err := core.New(server.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	var stored account
	lock := locks.FencedLock("account:42")
	slow, err := lock.Acquire(ctx, core.AcquireOptions{LeaseTime: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	slowToken, _ := slow.Token()
	fmt.Println("slow writes with", slowToken, stored.write(slowToken, 100))

	// It pauses, its lease expires, and another holder gets the lock.
	quick, err := lock.Acquire(ctx, core.AcquireOptions{WaitTime: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer quick.Release(ctx)
	quickToken, _ := quick.Token()
	fmt.Println("quick writes with", quickToken, stored.write(quickToken, 70))

	fmt.Println("slow writes with", slowToken, stored.write(slowToken, 130))
	fmt.Println("balance", stored.balance)
	fmt.Println("lost:", errors.Is(slow.Release(ctx), core.ErrLockLost))
	// Output:
	// slow writes with 1 <nil>
	// quick writes with 2 <nil>
	// slow writes with 1 stale token: another holder has had the lock since
	// balance 70
	// lost: true
}
