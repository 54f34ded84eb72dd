package core

import (
	"context"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A CountDownLatch makes callers wait until others have counted down to 0, in any process. Set the
// count with TrySetCount. Each CountDown lowers it by one. At 0, all callers of Await go on, and
// Redis keeps nothing. A latch is no lock: it has no holder and no lease, so if a process dies
// before its CountDown, the count stays until another counts down in its place. A count never
// expires.
//
// Await returns at once from a latch that has no count: it is 0. Callers may therefore wait only
// after the count was set. Before you set a count again, let all callers return from Await, or use
// another name for the next round: a caller that has not yet noticed the 0 waits for the next one.
//
// If Redis loses its data, the count is 0. A failover may undo the latest changes;
// Options.ReplicaAcks is for locks only.
type CountDownLatch struct{ lock Lock }

// CountDownLatch returns the latch of a name. It must differ from the names of locks and semaphores:
// the key of another type returns ErrWrongKind. In a cluster the name must have no braces, because
// Redisson puts braces around the whole name. Otherwise the rules are those of Lock. Redisson:
// getCountDownLatch.
func (c *Client) CountDownLatch(name string) *CountDownLatch {
	l := &CountDownLatch{lock: c.newLock(nil, name)}
	if l.lock.err == nil && c.inCluster() && strings.Contains(l.lock.key, "{") {
		l.lock.err = invalid(ErrInvalidName, "it has braces, and Redisson puts more around it, "+
			"so a cluster would keep a latch and its channel in different slots; use a name without braces")
	}
	return l
}

// Name returns the name that was given to the client.
func (l *CountDownLatch) Name() string { return l.lock.name }

// TrySetCount sets the count, and reports whether it did: it does not if the latch has a count
// already. The count must be at least 1. If ctx ends first, the count may be set nevertheless.
// Redisson: trySetCount.
func (l *CountDownLatch) TrySetCount(ctx context.Context, n int) (bool, error) {
	const op = "set the count of"
	if n < 1 {
		return false, l.fail(op, invalid(ErrInvalidOptions, "the count is %d; it must be at least 1", n))
	}
	if ctx.Err() != nil {
		return false, l.fail(op, ended(ctx))
	}
	set, err := l.change(ctx, func(m lua.LatchMark) lua.Call {
		return lua.LatchSet(l.lock.key, n, m, l.announce(wire.CountSet))
	})
	if err != nil {
		return false, l.fail(op, err)
	}
	return set, nil
}

// CountDown lowers the count by one. Without a count it does nothing. It counts once, however often
// it is sent to Redis. It retries until CommandTimeout while Redis cannot be reached.
//
// CountDown counts also if ctx has ended, as Release releases: it then returns the error of ctx at
// once, and goes on in the background. After another error it may have counted, unless that is
// ErrWrongKind, ErrInvalidName or ErrClosed. Calling it again could then count twice. Redisson:
// countDown.
func (l *CountDownLatch) CountDown(ctx context.Context) error {
	_, err := l.change(ctx, func(m lua.LatchMark) lua.Call {
		return lua.LatchCountDown(l.lock.key, m, l.announce(wire.CountedDown))
	})
	if err != nil {
		return l.fail("count down", err)
	}
	return nil
}

// Count returns the count, which is 0 if none was set. Redisson: getCount.
func (l *CountDownLatch) Count(ctx context.Context) (int, error) {
	reply, err := l.lock.run(ctx, lua.LatchCount(l.lock.key))
	n := 0
	if err == nil {
		n, err = lua.ReadLatchCount(reply)
	}
	if err != nil {
		return 0, l.fail("read", err)
	}
	return n, nil
}

// Await returns nil once the count is 0, and ctx's error if ctx ends first. The callers of a client
// that wait for one latch share a subscription and their questions to Redis. Like a caller of
// Acquire that waits for ever, Await outlasts failures of Redis that may pass; it counts towards
// Options.MaxWaiting; and while it waits it sends next to nothing, see Options.PollInterval. When the
// client is closed, it returns ErrClosed. Redisson: await.
func (l *CountDownLatch) Await(ctx context.Context) error {
	const op = "await"
	if l.lock.err != nil {
		return l.fail(op, l.lock.err)
	}
	if ctx.Err() != nil {
		return l.fail(op, ended(ctx))
	}
	w, err := l.lock.c.latches.join(l.lock.key)
	if err == nil {
		err = w.wait(ctx)
	}
	if err != nil {
		return l.fail(op, err)
	}
	return nil
}

func (l *CountDownLatch) announce(message string) lua.Announcement {
	return lua.Announcement{
		Channel:  wire.LatchChannel(l.lock.key),
		Message:  message,
		Commands: l.lock.c.publishMode().publishCommands(),
	}
}

func (l *CountDownLatch) fail(op string, err error) error {
	return &latchError{op, l.lock.label(), err}
}

// change sends a call that changes the count, in the background, where Close waits for it. The call
// leaves a mark in Redis, so that it changes the count once only: its reply may be lost, or one of
// its tries be late. The mark is removed when no try can arrive any more. If one still can, the mark
// stays for a time.
func (l *CountDownLatch) change(ctx context.Context, call func(lua.LatchMark) lua.Call) (changed bool, err error) {
	if l.lock.err != nil {
		return false, l.lock.err
	}
	type result struct {
		changed bool
		err     error
	}
	eng := l.lock.c.engine
	results := make(chan result, 1)
	if !eng.background.Go(func() {
		mark := wire.LatchMark(l.lock.key, eng.wireOwner(newOwner()))
		x := eng.ops.Op(call(lua.LatchMark{Key: mark, TTL: eng.markTTL()}), eng.opts.CommandTimeout).UntilSent()
		reply, err := x.Run(redisop.Until{})
		r := result{err: err}
		if err == nil {
			r.changed, r.err = x.Call().ReadUpdate(reply)
		}
		settled := err == nil && !x.TryUnanswered()
		x.Recycle()
		results <- r
		if settled {
			_, _ = eng.run(context.Background(), lua.LatchForget(mark)) // if it fails, the mark expires
		}
	}) {
		return false, ErrClosed
	}
	select {
	case r := <-results:
		return r.changed, r.err
	case <-ctx.Done():
		return false, ended(ctx)
	}
}

// markTTL returns how long Redis remembers a call after which a try may still be on its way.
func (eng *engine) markTTL() time.Duration {
	return max(eng.pauses.stray, 2*eng.opts.CommandTimeout).Truncate(time.Millisecond)
}
