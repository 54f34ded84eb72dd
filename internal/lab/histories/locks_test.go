package histories

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
)

// A Site tells processes where the servers of a topology are and how to use them. A process gets it
// as JSON.
type Site struct {
	// Topology is "single", "sentinel", "cluster" or "red".
	Topology string
	// Addrs lead to the servers, or to the sentinels.
	Addrs   []string
	Acks    int // ReplicaAcks
	Names   []Name
	Process int
	Seed    uint64
	// Callers is how many run at a time.
	Callers int
	// Tokens is a directory for the tokens of holders that let guests in.
	Tokens string
	// Unrecords is true if no record is stored, because the topology may lose it.
	Unrecords bool
}

// A Name is the name of one lock.
type Name struct {
	Kind, Name string
	// Permits is how many a semaphore has. Takes is how many an Acquire takes.
	Permits, Takes int
}

// several takes several permits of a semaphore at a time.
type several struct {
	*core.Semaphore
	takes int
}

func (s several) Acquire(ctx context.Context, opts core.AcquireOptions) (*core.Lease, error) {
	return s.AcquireN(ctx, s.takes, opts)
}

// These times apply to all clients. Leases are short, so that many end in a round, but longer than
// a busy machine pauses.
const (
	watchdog       = 2 * time.Second
	commandTimeout = time.Second
	pollInterval   = 2 * time.Second // so long that a waiter without a message is late
	longestLease   = 1500 * time.Millisecond
	longestWait    = 5 * time.Second
	// hidden is how long an unclaimed lock may stay: the time in which a stray may arrive, a lease
	// of the watchdog, and some time for a busy machine.
	hidden = watchdog + 2*commandTimeout + 2*time.Second
	// prompt is how long a lock or a permit may be free beside a waiter while nothing fails. A busy
	// machine may need some of it to deliver a message, and the calls' results.
	prompt = time.Second
	// longestBlock is how long a name may stay blocked after all processes have ended. A fair lock
	// with dead waiters waits for each of them in turn.
	longestBlock = 90 * time.Second
)

// clients are the lock clients of a process: one, or one for each server of a RedLock.
type clients struct {
	locks []*core.Client
	rdbs  []redis.UniversalClient
}

func (s Site) open(log *slog.Logger) (*clients, error) {
	const read = 1500 * time.Millisecond
	keys, err := delegation.NewKeys(make([]byte, 32)) // no secret: the tokens are the test's own
	if err != nil {
		return nil, err
	}
	c := &clients{}
	switch s.Topology {
	case "single", "red":
		for _, addr := range s.Addrs {
			c.rdbs = append(c.rdbs, redis.NewClient(&redis.Options{Addr: addr, DialTimeout: read, ReadTimeout: read, PoolSize: 20}))
		}
	case "sentinel":
		c.rdbs = append(c.rdbs, redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "redistest", SentinelAddrs: s.Addrs, DialTimeout: read, ReadTimeout: read, PoolSize: 20}))
	case "cluster":
		c.rdbs = append(c.rdbs, redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs, DialTimeout: read, ReadTimeout: read, PoolSize: 20}))
	default:
		return nil, errors.New("histories: unknown topology " + s.Topology)
	}
	for _, rdb := range c.rdbs {
		locks, err := core.New(rdb, core.Options{
			WatchdogTimeout: watchdog, CommandTimeout: commandTimeout, PollInterval: pollInterval,
			ReplicaAcks: s.Acks, ReplicaTimeout: 500 * time.Millisecond, Logger: log,
			FairWaitTimeout: 5 * time.Second, Delegation: delegation.Service{Keys: keys, Name: audience},
		})
		if err != nil {
			return nil, err
		}
		c.locks = append(c.locks, locks)
	}
	return c, nil
}

func (c *clients) close(ctx context.Context) (err error) {
	for _, locks := range c.locks {
		err = errors.Join(err, locks.Close(ctx))
	}
	for _, rdb := range c.rdbs {
		err = errors.Join(err, rdb.Close())
	}
	return err
}

// stats adds up the open work of the clients.
func (c *clients) idle() bool {
	for _, locks := range c.locks {
		if locks.Stats() != (core.Stats{}) {
			return false
		}
	}
	return true
}

// locker returns a lock other than a Once.
func (c *clients) locker(n Name) core.Locker {
	locks := c.locks[0]
	switch n.Kind {
	case "lock", "guests":
		return locks.Lock(n.Name)
	case "fair":
		return locks.FairLock(n.Name)
	case "fenced":
		return locks.FencedLock(n.Name)
	case "read":
		return locks.ReadWriteLock(n.Name).Read()
	case "write":
		return locks.ReadWriteLock(n.Name).Write()
	case "semaphore":
		return several{locks.Semaphore(n.Name, n.Permits), n.Takes}
	case "red":
		var members []core.Locker
		for _, locks := range c.locks {
			members = append(members, locks.Lock(n.Name))
		}
		return core.RedLock(members...)
	}
	panic("histories: unknown kind " + n.Kind)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
