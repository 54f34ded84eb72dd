package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/core/internal/watchdog"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A Client makes locks on one Redis. It needs one pub/sub connection beside those of the Redis client it is given, in a cluster
// with sharded channels one for each master, and no goroutine for a lock or a waiter. Its methods may be called from any goroutine.
type Client struct {
	*engine
	names      *names
	dog        *watchdog.Watchdog[*hold]
	address    string        // where Redis is; see MultiLock
	clockWatch chan struct{} // closed when its goroutine has ended
}

// New returns a client that keeps locks on rdb, which it does not close. It does not talk to Redis. It refuses, with
// ErrInvalidOptions, what can never work: negative durations, a client without ReadTimeout or WriteTimeout, a *redis.Ring.
//
// New adds a hook to rdb, or to each node of a cluster, by which the commands of locks mind CommandTimeout where the time-outs of
// rdb are longer. Other commands pass it unchanged. Add hooks of your own before: those added later do not see the commands of
// locks. A client that is neither a *redis.Client nor a *redis.ClusterClient gets no hook, and its own time-outs apply.
func New(rdb redis.UniversalClient, opts Options) (*Client, error) {
	return newClient(rdb, opts, clock.At)
}

func newClient(rdb redis.UniversalClient, opts Options, at func(time.Time) clock.Instant) (*Client, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkRedis(rdb, opts); err != nil {
		return nil, err
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("reqlock: core.New: no random numbers for the client's id: %w", err)
	}
	e := &engine{
		opts:        opts,
		id:          id.String(),
		at:          at,
		slot:        func(string) int { return 0 },
		publish:     newPublishProbe(rdb, opts),
		gone:        make(chan struct{}, 1),
		closing:     make(chan struct{}),
		closed:      make(chan struct{}),
		firstChance: firstChance,
		linger:      linger,
		absentGrace: absentGrace,
	}
	c := &Client{engine: e, address: addressIn(rdb), clockWatch: make(chan struct{})}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		e.cluster, e.slot = cluster, wire.Slot
	}
	c.ops = redisop.New(redisop.Config{
		Redis:      rdb,
		Timeout:    opts.CommandTimeout,
		Acks:       opts.ReplicaAcks,
		AckTimeout: opts.ReplicaTimeout,
		Clock:      at,
		Logger:     opts.Logger,
		Closed:     ErrClosed,
		Background: c.background.Go,
	})
	c.hub = hub.New(hub.Config{
		Redis:        rdb,
		Commands:     c.publish.subscribeCommands,
		PingInterval: max(leastPing, 2*min(opts.PollInterval, time.Hour)),
		Lost:         c.ops.PubSubLost,
		Back:         c.ops.PubSubBack,
	})
	c.dog = watchdog.New(watchdog.Config[*hold]{Interval: c.beat(), Slots: c.cluster != nil, Send: c.renew})
	c.alarms = schedule.New(0, func(due []alarm) {
		for _, a := range due {
			a.ring()
		}
	})
	c.names = newNames(e, c.dog)
	c.cleaner = newCleaner(e, c.names.wake)
	go c.watchClock()
	return c, nil
}

// addressIn is the address of the server that a Redis client is for, and the number of the database. One that asks sentinels does
// not tell which.
func addressIn(rdb redis.UniversalClient) string {
	switch c := rdb.(type) {
	case *redis.Client:
		return fmt.Sprintf("%s/%d", c.Options().Addr, c.Options().DB)
	case *redis.ClusterClient:
		return strings.Join(slices.Sorted(slices.Values(c.Options().Addrs)), ",")
	}
	return ""
}

// leastPing is how long the subscriptions' connection has for an answer to a ping at least, however often waiters ask.
const leastPing = time.Second

// Stats counts what a client has at hand. All of it is 0 when nobody holds or waits, a moment after the last one did.
type Stats struct {
	Held     int // locks held, each counted once however often it was entered
	Waiting  int // callers of Acquire
	Names    int // names of which anything is known
	Channels int // pub/sub channels
	Renewals int // locks that the watchdog keeps
	Cleanups int // releases to be sent, or to be repeated, in the background
}

// Stats returns the numbers of this moment.
func (c *Client) Stats() Stats {
	s := Stats{Channels: c.hub.Len(), Renewals: c.dog.Len(), Cleanups: c.cleaner.len()}
	c.names.each(func(e *entry) {
		s.Names++
		s.Held += int(e.holds.len)
		s.Waiting += e.queue.Len()
	})
	return s
}

// renew is how the watchdog renews a batch of holds.
func (c *Client) renew(items []*watchdog.Item[*hold]) []watchdog.Verdict {
	holds := make([]lua.Renewable, len(items))
	for i, item := range items {
		holds[i] = item.Hold.renewable()
	}
	lease := c.leaseTime(0)
	// Hasty: a slot in migration answers TRYAGAIN to a batch for as long as it takes, and serves each key alone.
	x := c.ops.Op(lua.Renew(holds, lease), min(c.opts.CommandTimeout, c.beat())).Renewing().Hasty()
	answer, err := x.Run(nil, nil)
	var results []lua.Renewal
	if err == nil {
		results, err = lua.ReadRenew(answer, len(items))
	}

	verdicts := make([]watchdog.Verdict, len(items))
	for i, item := range items {
		h := item.Hold
		problem := err
		if err == nil {
			problem = results[i].Err
		}
		if problem == nil && results[i].Renewed {
			problem = x.Proven()
		}
		switch {
		case err != nil && !redisop.IsAnswer(err), errors.Is(problem, ErrNotReplicated):
			verdicts[i] = watchdog.Unanswered
		case problem != nil:
			verdicts[i] = watchdog.Refused
		case results[i].Renewed:
			h.handleRenewed(x.Sent(), lease, holds[i])
		case h.handleMissing(holds[i]):
			verdicts[i] = watchdog.Gone
		default:
			verdicts[i] = watchdog.Outdated
		}
		if problem != nil {
			h.watchDeadlines()
		}
		if problem != nil && (len(items) == 1 || verdicts[i] == watchdog.Unanswered) {
			h.reportRenewFailed(problem)
		}
	}
	return verdicts
}

// watchClock looks out for a clock that was set, or a machine that was asleep: then every lease is looked at, and renewed
// at once if it is still good.
func (c *Client) watchClock() {
	defer close(c.clockWatch)
	tick := time.NewTicker(min(time.Second, c.opts.WatchdogTimeout/10))
	defer tick.Stop()
	last := c.clock()
	for {
		select {
		case <-tick.C:
		case <-c.closed:
			return
		}
		now := c.clock()
		if now.Drift(last) <= clock.Margin(c.opts.WatchdogTimeout) {
			continue
		}
		last = now
		c.opts.Logger.Warn("reqlock: the clocks have parted, all leases are looked at")
		var leases []*level
		c.names.each(func(e *entry) {
			for h := e.holds.first; h != nil; h = h.next {
				for l := h.leases; l != nil; l = l.next {
					leases = append(leases, l)
				}
			}
		})
		for _, l := range leases {
			l.expire() // ends it if its time is over, or else has it looked at again in time
		}
		c.dog.RenewAll()
	}
}

// Close ends the client. New Acquires and those that wait fail with ErrClosed at once, but for those of owners that have the lock, who
// may enter it again until they have released it. Then it waits until all locks are released or ctx ends; the locks that are left end
// with cause ErrClosed and are released, and the error says how many there were. No goroutine of the client is left when it returns. In a
// server, whose Shutdown does not wait for what it runs:
//
//	closed := make(chan error, 1)
//	srv.RegisterOnShutdown(func() { closed <- locks.Close(ctx) })
//	err := errors.Join(srv.Shutdown(ctx), <-closed)
//
// A second Close waits for the first.
func (c *Client) Close(ctx context.Context) error {
	if !c.state.CompareAndSwap(open, draining) {
		select {
		case <-c.clockWatch: // the last goroutine to end; where it has, it does not matter that ctx has as well
			return nil
		default:
		}
		select {
		case <-c.clockWatch:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("reqlock: close: %w", ended(ctx))
		}
	}
	close(c.closing)
	c.names.each(func(e *entry) { e.dismissLocked(e.queue.Arrivals(), ErrClosed) })
	c.names.awaitAcquires()

	err := c.noneHeld(ctx)
	c.state.Store(closed)
	left, late := c.endHolds(), c.awaitReleases()
	switch {
	case err == nil:
	case left > 0:
		err = fmt.Errorf("reqlock: close: %d locks were still held: %w", left, err)
	case late != nil:
		err = fmt.Errorf("reqlock: close: releases were still under way: %w", late)
	default:
		err = nil // what was under way when ctx ended has been released
	}

	c.alarms.Close()
	c.dog.Close()
	c.background.close()
	c.cleaner.close(ctx)
	c.ops.Close()
	c.hub.Close()
	c.names.clear()
	close(c.closed)
	<-c.clockWatch
	return err
}

// noneHeld waits until no lock is held.
func (c *Client) noneHeld(ctx context.Context) error {
	for {
		if c.names.held() == 0 {
			return nil
		}
		select {
		case <-c.gone:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// awaitReleases gives the releases that are on their way the time they have anyway, before nothing can be sent any more.
func (c *Client) awaitReleases() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.CommandTimeout)
	defer cancel()
	return c.noneHeld(ctx) // what is left then runs out
}

// endHolds ends every hold that has leases; the cleaner frees it. A hold without one is on its way out already.
func (c *Client) endHolds() (n int) {
	var all []loss
	c.names.each(func(e *entry) {
		for h := e.holds.first; h != nil; h = h.next {
			if h.state == held {
				all = append(all, h.endLocked(ErrClosed))
			}
		}
	})
	finishLosses(all)
	return len(all)
}
