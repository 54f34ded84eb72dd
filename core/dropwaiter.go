package core

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core/internal/kinds"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// DropWaiter removes a waiter from the queue of a fair lock, and reports whether it was there. Key and
// owner are as in Redis, as package inspect finds them. If the lock is free, the next in the queue is
// told that its turn has come. Use it for a process that is first, is connected and does not take the
// lock, such as one that is suspended. One that runs again queues up at the end with its next attempt.
// It takes the lock from no one. Options.NameMapper is not applied.
func (c *Client) DropWaiter(ctx context.Context, key, owner string) (bool, error) {
	l := &Lock{c: c, kind: kinds.Fair, name: key, key: key, err: c.checkSlot(key)}
	switch {
	case key == "":
		l.err = invalid(ErrInvalidName, "it is empty")
	case owner == "":
		l.err = invalid(ErrInvalidOptions, "there is no waiter to drop")
	}
	if l.err != nil {
		return false, opErr("drop a waiter of", l.label(), l.err)
	}
	dropped, err := l.dropWaiter(ctx, owner)
	if err != nil {
		err = opErr("drop a waiter of", l.label(), err)
	}
	return dropped, err
}

// dropWaiter removes the waiter with plain commands, because the script of a release would free the
// lock of a waiter that has acquired it meanwhile. Then it releases a hold of no one, which tells the
// first in the queue that the lock is free.
func (l *Lock) dropWaiter(ctx context.Context, owner string) (bool, error) {
	bound, cancel := context.WithTimeout(ctx, l.c.opts.CommandTimeout)
	defer cancel()
	var removed *redis.IntCmd
	_, err := l.c.redis.TxPipelined(bound, func(pipe redis.Pipeliner) error {
		removed = pipe.LRem(bound, wire.FairQueue(l.key), 0, owner)
		pipe.ZRem(bound, wire.FairDeadlines(l.key), owner)
		return nil
	})
	if err != nil {
		return false, err
	}
	nobody := l.c.engine.wireOwner(newOwner())
	_, err = l.c.run(ctx, l.kind.Release(l.c.engine.settings(), kinds.Hold{Key: l.key, Wire: nobody}))
	return removed.Val() > 0, err
}
