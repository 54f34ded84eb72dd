package docs_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// docs/guides/limits.md
func TestLimit(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	mux := http.NewServeMux()
	inside, leave := make(chan struct{}), make(chan struct{})
	export := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{}
		<-leave
	})
	exports := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("exports:", keyfuncs.PathValue("tenant")),
		Limit:    5,               // at a time for each tenant, over all servers
		WaitTime: 2 * time.Second, // then 429
	})
	mux.Handle("POST /{tenant}/exports", exports(export))

	answers := make(chan string)
	for range 5 {
		go func() { answers <- answerOf(mux, post("/acme/exports")) }()
	}
	go func() { answers <- answerOf(mux, post("/umbrella/exports")) }() // another tenant
	for range 6 {
		<-inside
	}
	if got := answerOf(mux, post("/acme/exports")); got[:3] != "429" {
		t.Errorf("the sixth export: %s", got)
	}
	close(leave)
	for range 6 {
		if got := <-answers; got[:3] != "200" {
			t.Errorf("an export within the limit: %s", got)
		}
	}
}

// docs/guides/limits.md
func TestSemaphore(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	ctx := t.Context()
	inside, leave := make(chan struct{}), make(chan struct{})
	call := func(ctx context.Context) error {
		inside <- struct{}{}
		<-leave
		return ctx.Err()
	}
	run := func() error {
		partner := locks.Semaphore("partner:calls", 20)
		err := core.Do(ctx, partner, core.AcquireOptions{WaitTime: 2 * time.Second}, func(ctx context.Context) error {
			return call(ctx) // ctx ends if the permit is lost
		})
		return err
	}
	results := make(chan error)
	for range 20 {
		go func() { results <- run() }()
	}
	for range 20 {
		<-inside
	}
	if err := core.Do(ctx, locks.Semaphore("partner:calls", 20), core.AcquireOptions{}, call); !errors.Is(err, core.ErrNotAcquired) {
		t.Errorf("a call beyond the limit: %v", err)
	}
	close(leave)
	for range 20 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// docs/guides/limits.md
func TestSemaphoreOfRedis(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	call := func(ctx context.Context) error { return ctx.Err() }
	run := func(ctx context.Context) error {
		partner := locks.Semaphore("partner:shared", 0)     // as many as Redis has
		if err := partner.SetPermits(ctx, 20); err != nil { // once, as trySetPermits(20) of a JVM
			return err
		}
		lease, err := partner.Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
		if err != nil {
			return err // core.ErrNotAcquired: all 20 were taken
		}
		defer lease.Release(ctx)
		return call(lease.Context())
	}
	if err := run(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := locks.Semaphore("partner:shared", 0).Available(t.Context()); n != 20 || err != nil {
		t.Errorf("%d permits are free, %v; want 20", n, err)
	}
}

// docs/guides/migrating.md
func TestSemaphoreInPlaceOfOneByHand(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	exports := 0
	export := func(context.Context) error {
		exports++
		return nil
	}
	run := func(ctx context.Context) error {
		lease, err := locks.Semaphore("exports", 5).Acquire(ctx, core.AcquireOptions{WaitTime: 2 * time.Second})
		if err != nil {
			return err // core.ErrNotAcquired: five others are at it
		}
		defer lease.Release(ctx)
		return export(lease.Context())
	}
	if err := run(t.Context()); err != nil || exports != 1 {
		t.Errorf("%v, %d exports", err, exports)
	}
}
