package demotest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hold holds a lock without sides as another program would.
func Hold(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	hold(t, rdb, name, "another-program:1", 1)
}

// HoldWrite holds the write side of a read/write lock as another program would.
func HoldWrite(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	hold(t, rdb, name, "mode", "write", "another-program:1:write", 1)
}

func hold(t *testing.T, rdb *redis.Client, name string, fields ...any) {
	t.Helper()
	ctx := context.Background()
	if err := errors.Join(rdb.HSet(ctx, name, fields...).Err(), rdb.PExpire(ctx, name, time.Minute).Err()); err != nil {
		t.Fatal(err)
	}
}

// Free releases a lock held by Hold or HoldWrite, and wakes the waiters.
func Free(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	ctx := context.Background()
	err := rdb.Del(ctx, name).Err()
	for _, channel := range channelsOf(name) {
		err = errors.Join(err, rdb.Publish(ctx, channel, 0).Err())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// channelsOf returns the channels on which the release of a lock may be published, by kind.
func channelsOf(name string) []string {
	return []string{"redisson_lock__channel:{" + name + "}", "redisson_rwlock:{" + name + "}", "redisson_sc:{" + name + "}"}
}

// AwaitHolder waits until the lock is held, or until there is an answer because it already was.
func AwaitHolder(t *testing.T, rdb *redis.Client, name string, answer <-chan Answer) {
	t.Helper()
	Await(t, "no holder of "+name, func(ctx context.Context) bool { return rdb.Exists(ctx, name).Val() == 1 || len(answer) > 0 })
}

// AwaitWaiter waits until a request waits for the lock.
func AwaitWaiter(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	channels := channelsOf(name)
	Await(t, "no waiter for "+name, func(ctx context.Context) bool {
		n, err := rdb.PubSubNumSub(ctx, channels...).Result()
		return err == nil && n[channels[0]]+n[channels[1]]+n[channels[2]] > 0
	})
}

// AwaitFree waits until no lock is held and no permit is taken. A handler's answer may arrive before
// its lock is released.
func AwaitFree(t *testing.T, rdb *redis.Client) {
	t.Helper()
	Await(t, "a key left behind", func(ctx context.Context) bool {
		keys, err := rdb.Keys(ctx, "*").Result()
		return err == nil && len(withoutLimits(keys)) == 0
	})
}

// withoutLimits drops the keys of limits that have no holder. Redis keeps their numbers for a day.
func withoutLimits(keys []string) []string {
	return slices.DeleteFunc(keys, func(key string) bool {
		return strings.Contains(key, "%limit:") && !strings.HasSuffix(key, ":timeout")
	})
}

// Await fails the test if a condition does not hold in time. otherwise describes that.
func Await(t *testing.T, otherwise string, is func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !is(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("there is %s", otherwise)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// checkEmpty fails the test if Redis still has keys or channels.
func checkEmpty(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	keys = withoutLimits(keys)
	if err != nil || len(keys) > 0 {
		t.Errorf("keys %q are left behind (%v)", keys, err)
	}
	channels, err := rdb.PubSubChannels(ctx, "*").Result()
	if err != nil || len(channels) > 0 {
		t.Errorf("channels %q are left behind (%v)", channels, err)
	}
}
