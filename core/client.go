package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/core/internal/watchdog"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/loglimit"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A Client creates locks on one Redis. It has connections of its own besides the pool of its Redis
// client: one for pub/sub, in a cluster with sharded channels one per master as well, and up to four
// for commands and four for renewals, which it dials when several are under way at a time. They count
// as PubSubStats in PoolStats. It uses no goroutine per
// lock or waiter, and one for each latch that callers wait for. Its methods may be called from any
// goroutine.
type Client struct {
	*engine
	given      redis.UniversalClient // what New was given
	servers    *serverIDs
	names      *names
	dog        *watchdog.Watchdog[*hold]
	latches    *latches
	address    string        // where Redis is; orders the locks of a MultiLock
	clockWatch chan struct{} // closed when watchClock has returned
}

// New returns a client that keeps locks on rdb. It neither sends a command nor closes rdb. It
// returns ErrInvalidOptions for anything that can never work: negative durations, an rdb without
// ReadTimeout or WriteTimeout, a *redis.Ring.
//
// rdb is a *redis.Client, with or without sentinels, or a *redis.ClusterClient. To trace or count
// its commands, use its AddHook. New refuses any other type, such as a struct that embeds one of
// these, unless it has the method Unwrap() redis.UniversalClient. New then uses what that returns,
// so commands of locks do not pass through the methods of the type.
//
// New cannot see whether rdb fits the server. The first Acquire finds that out, and so does each
// Ping. If rdb is for one server, and that is one master of several in a cluster, or if it is for a
// cluster, and the server is none, they return ErrMisconfigured.
//
// New adds a hook to rdb, or to each node of a cluster, that bounds the commands of locks by
// CommandTimeout even if the timeouts of rdb are longer. Other commands pass through it unchanged.
// Add your own hooks before New: the commands of locks bypass hooks that are added later.
func New(rdb redis.UniversalClient, opts Options) (*Client, error) {
	return newClient(rdb, opts, clock.At)
}

func newClient(rdb redis.UniversalClient, opts Options, at func(time.Time) clock.Instant) (*Client, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	conn, err := checkRedis(rdb, opts)
	if err != nil {
		return nil, err
	}
	eng := &engine{
		opts:      opts,
		redis:     conn,
		id:        newClientID(opts.ClientID),
		made:      clock.Now(),
		at:        at,
		slot:      func(string) int { return 0 },
		publish:   newPublishProbe(conn, opts),
		gone:      make(chan struct{}, 1),
		closing:   make(chan struct{}),
		closed:    make(chan struct{}),
		room:      newWaitingRoom(opts.MaxWaiting),
		lostLines: loglimit.Limit{Burst: 10},
		pauses:    defaultPauses,
	}
	c := &Client{engine: eng, given: rdb, address: addressIn(conn), clockWatch: make(chan struct{})}
	if eng.inCluster() {
		eng.slot = wire.Slot
	}
	c.ops = redisop.New(redisop.Config{
		Redis:      conn,
		Timeout:    opts.CommandTimeout,
		Acks:       opts.ReplicaAcks,
		AckTimeout: opts.ReplicaTimeout,
		Clock:      at,
		Logger:     opts.Logger,
		Closed:     ErrClosed,
		Background: c.background.Go,
		Lacking:    c.logLacking,
		Closing:    c.closing,
	})
	c.hub = hub.New(hub.Config{
		Redis:        conn,
		Commands:     c.publish.subscribeCommands,
		PingInterval: max(leastPing, min(opts.PollInterval, time.Hour)),
		Lost: func(err error) {
			c.counters.pubsub.Add(1)
			c.ops.PubSubLost(err)
		},
		Back: c.ops.PubSubBack,
	})
	c.servers = &serverIDs{redis: conn, timeout: opts.CommandTimeout, background: c.background.Go}
	c.dog = watchdog.New(watchdog.Config[*hold]{Interval: c.beat(), Slots: c.inCluster(), Send: c.renew})
	c.alarms = schedule.New(0, func(due []alarm) {
		for _, a := range due {
			a.ring()
		}
	})
	c.names = newNames(eng, c.dog)
	c.cleaner = newCleaner(eng, c.names.wake)
	c.inbox = newInbox(eng, c.names)
	c.latches = newLatches(eng)
	go c.watchClock()
	return c, nil
}

// addressIn returns the address and database of the server that rdb connects to. For a client of
// Sentinel it is not known which server that is.
func addressIn(rdb redisclient.Client) string {
	if rdb.Cluster != nil {
		return strings.Join(slices.Sorted(slices.Values(rdb.Cluster.Options().Addrs)), ",")
	}
	o := rdb.Node().Options()
	return fmt.Sprintf("%s/%d", o.Addr, o.DB)
}

// leastPing is the least time that the pub/sub connection has to answer a ping, however short
// PollInterval is.
const leastPing = time.Second

// Stats counts what a client is doing. All fields return to 0 shortly after the last lock is
// released and the last waiter has left.
type Stats struct {
	Held     int // locks held; a lock that is held several times by one owner counts once
	Waiting  int // callers waiting in Acquire, including first attempts under way, and in Await; see Options.MaxWaiting
	Names    int // lock names in use
	Channels int // pub/sub channels of locks and latches
	Renewals int // locks that the watchdog renews
	Cleanups int // releases to be sent or retried in the background
}

// Stats returns the current counts.
func (c *Client) Stats() Stats {
	s := Stats{Channels: c.hub.Len(), Renewals: c.dog.Len(), Cleanups: c.cleaner.len(), Waiting: c.latches.len()}
	c.names.each(func(e *entry) {
		s.Names++
		s.Held += int(e.holds.len)
		s.Waiting += e.queue.Len()
	})
	return s
}

// Counters returns the current counters.
func (c *Client) Counters() Counters {
	sent, errors := c.ops.Counters()
	return Counters{
		HandOvers:      c.counters.handOvers.Load(),
		Polls:          c.counters.polls.Load(),
		RenewFailures:  c.counters.renewFailures.Load(),
		Lost:           c.counters.lost.Load(),
		Forced:         c.counters.forced.Load(),
		PubSubFailures: c.counters.pubsub.Load(),
		Guests:         c.counters.guests.Load(),
		ParentsLost:    c.counters.parentsLost.Load(),
		TokensIgnored:  c.counters.tokensIgnored.Load(),
		Commands:       sent.Calls,
		BatchSizes:     sent.Sizes,
		Errors:         errors,
	}
}

// Redis returns the client that was given to New.
func (c *Client) Redis() redis.UniversalClient { return c.given }

// watchClock detects that a clock was set or that the machine was suspended. It then ends every
// lease that has expired, and renews the others at once.
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
		c.opts.Logger.Warn("reqlock: the clocks have diverged, checking all leases")
		var leases []*level
		c.names.each(func(e *entry) {
			for h := e.holds.first; h != nil; h = h.next {
				for l := h.leases; l != nil; l = l.next {
					leases = append(leases, l)
				}
			}
		})
		for _, l := range leases {
			l.expire() // ends the lease if it has expired, otherwise sets its alarm again
		}
		c.dog.RenewAll()
	}
}

// Close closes the client. New calls of Acquire and those that wait fail with ErrClosed at once,
// except that an owner may re-enter a lock until it has released it. Close then waits until all
// locks are released or ctx ends. It ends the locks that are left with cause ErrClosed, releases
// them, and returns an error with their number. When Close returns, no goroutine of the client is
// left. In a server, whose Shutdown does not wait for the functions it calls:
//
//	closed := make(chan error, 1)
//	srv.RegisterOnShutdown(func() { closed <- locks.Close(ctx) })
//	err := errors.Join(srv.Shutdown(ctx), <-closed)
//
// A second Close waits for the first.
func (c *Client) Close(ctx context.Context) error {
	if !c.state.CompareAndSwap(open, draining) {
		select {
		// The last goroutine to end. Check it first, because ctx may have ended as well.
		case <-c.clockWatch:
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
	c.ops.Interrupt()
	c.names.each(func(e *entry) { e.dismissLocked(e.queue.Arrivals(), ErrClosed) })
	c.names.awaitAcquires()

	err := c.awaitNoneHeld(ctx)
	c.state.Store(closed)
	left, late := c.endHolds(), c.awaitReleases()
	switch {
	case err == nil:
	case left > 0:
		err = fmt.Errorf("reqlock: close: %d locks were still held: %w", left, err)
	case late != nil:
		err = fmt.Errorf("reqlock: close: releases were still under way: %w", late)
	default:
		err = nil // the releases in flight when ctx ended have finished
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

// awaitNoneHeld waits until no lock is held. It returns an error if ctx ends first.
func (c *Client) awaitNoneHeld(ctx context.Context) error {
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

// awaitReleases waits for the releases in flight. Each takes twice CommandTimeout at most: it may
// wait for its turn, or try a hand-over first.
func (c *Client) awaitReleases() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.opts.CommandTimeout)
	defer cancel()
	return c.awaitNoneHeld(ctx) // any lock left after that expires
}

// endHolds ends every hold that has leases and returns their number. The cleaner frees them. A hold
// without leases is being released already.
func (c *Client) endHolds() (n int) {
	var all []loss
	c.names.each(func(e *entry) {
		for h := e.holds.first; h != nil; h = h.next {
			if h.claim.State() == claim.Held {
				all = append(all, h.endLocked(ErrClosed))
			}
		}
	})
	finishLosses(all)
	return len(all)
}
