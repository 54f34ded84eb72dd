package demotest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hold has somebody else hold a lock.
func Hold(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	ctx := context.Background()
	if err := errors.Join(rdb.HSet(ctx, name, "somebody-else:1", 1).Err(), rdb.PExpire(ctx, name, time.Minute).Err()); err != nil {
		t.Fatal(err)
	}
}

// Free ends what Hold began, and wakes those who wait.
func Free(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	ctx := context.Background()
	if err := errors.Join(rdb.Del(ctx, name).Err(), rdb.Publish(ctx, channelOf(name), 0).Err()); err != nil {
		t.Fatal(err)
	}
}

// channelOf is where the release of a lock is published.
func channelOf(name string) string { return "redisson_lock__channel:{" + name + "}" }

// AwaitHolder returns when somebody holds a lock.
func AwaitHolder(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	await(t, "no holder of "+name, func(ctx context.Context) bool { return rdb.Exists(ctx, name).Val() == 1 })
}

// AwaitWaiter returns when somebody waits for a lock.
func AwaitWaiter(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	channel := channelOf(name)
	await(t, "nobody waiting for "+name, func(ctx context.Context) bool {
		n, err := rdb.PubSubNumSub(ctx, channel).Result()
		return err == nil && n[channel] > 0
	})
}

// AwaitFree returns when no lock is held: a handler's answer may arrive just before its lock is released.
func AwaitFree(t *testing.T, rdb *redis.Client) {
	t.Helper()
	await(t, "a key left behind", func(ctx context.Context) bool {
		n, err := rdb.DBSize(ctx).Result()
		return err == nil && n == 0
	})
}

// await fails the test if what it waits for does not come.
func await(t *testing.T, otherwise string, is func(context.Context) bool) {
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

// checkEmpty fails the test if anything is left in Redis.
func checkEmpty(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("keys %q are left behind (%v)", keys, err)
	}
	channels, err := rdb.PubSubChannels(ctx, "*").Result()
	if err != nil || len(channels) > 0 {
		t.Errorf("channels %q are left behind (%v)", channels, err)
	}
}
