package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The code of docs/guides/migrating.md: the same report with three libraries. Each returns an error
// if another process holds the lock.

func withRedsync(ctx context.Context, rs *redsync.Redsync, report func(context.Context) error) error {
	mutex := rs.NewMutex("report", redsync.WithExpiry(30*time.Second))
	if err := mutex.TryLockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(ctx)
	return report(ctx) // must end within 30s, or extend the mutex
}

func withRedislock(ctx context.Context, locker *redislock.Client, report func(context.Context) error) error {
	lock, err := locker.Obtain(ctx, "report", 30*time.Second, nil)
	if err != nil {
		return err // redislock.ErrNotObtained
	}
	defer lock.Release(ctx)
	return report(ctx) // must end within 30s, or refresh the lock
}

func withReqlock(ctx context.Context, locks *core.Client, report func(context.Context) error) error {
	return core.Do(ctx, locks.Lock("report"), core.AcquireOptions{}, report) // its context ends if the lock is lost
}

func TestMigrating(t *testing.T) {
	ctx := t.Context()
	for name, run := range map[string]func(rdb *redis.Client, report func(context.Context) error) error{
		"redsync": func(rdb *redis.Client, report func(context.Context) error) error {
			return withRedsync(ctx, redsync.New(goredis.NewPool(rdb)), report)
		},
		"redislock": func(rdb *redis.Client, report func(context.Context) error) error {
			return withRedislock(ctx, redislock.New(rdb), report)
		},
		"reqlock": func(rdb *redis.Client, report func(context.Context) error) (err error) {
			locks, err := core.New(rdb, core.Options{})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, locks.Close(ctx)) }()
			return withReqlock(ctx, locks, report)
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			ran := 0
			err := run(rdb, func(context.Context) error {
				ran++
				if inner := run(rdb, func(context.Context) error { ran++; return nil }); inner == nil {
					t.Error("a second holder ran beside the first")
				}
				return nil
			})
			if err != nil || ran != 1 {
				t.Errorf("ran %d times, %v", ran, err)
			}
		})
	}
}
