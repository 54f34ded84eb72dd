package inspect

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// stallTime is how long a fair lock is free before its queue is a fault. A waiter that is told that
// its turn has come takes the lock within milliseconds.
const stallTime = 300 * time.Millisecond

// Stall says what is wrong with the first in the queue of a lock that is Stalled. It is empty for
// other locks.
func (l *Lock) Stall() string {
	switch {
	case !l.Stalled:
		return ""
	case l.Queue[0].Absent:
		return "gone: no client listens for it, so the next that waits skips it within 15 s"
	}
	return "suspended or stalled: connected, but does not take the lock"
}

// markStalled looks again at fair locks that are free and have a queue, and marks those whose first
// waiter has not taken the lock meanwhile.
func markStalled(ctx context.Context, rdb redisclient.Client, locks []Lock) error {
	type look struct {
		lock  *Lock
		holds *redis.IntCmd
		first *redis.StringSliceCmd
	}
	var again []look
	for i := range locks {
		if l := &locks[i]; l.Semaphore == nil && !l.Held() && len(l.Queue) > 0 {
			again = append(again, look{lock: l})
		}
	}
	if len(again) == 0 {
		return nil
	}
	select {
	case <-time.After(stallTime):
	case <-ctx.Done():
		return ctx.Err()
	}
	pipe := rdb.Pipeline()
	for i := range again {
		keys := core.KeysOf(again[i].lock.Name)
		again[i].holds, again[i].first = pipe.HLen(ctx, keys.Lock), pipe.LRange(ctx, keys.Queue, 0, 0)
	}
	if err := exec(ctx, pipe); err != nil {
		return err
	}
	for _, a := range again {
		first := a.first.Val()
		a.lock.Stalled = a.holds.Val() == 0 && len(first) > 0 && first[0] == a.lock.Queue[0].Owner
	}
	return nil
}
