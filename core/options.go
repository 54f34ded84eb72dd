package core

import (
	"log/slog"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options configure a Client. The zero value is the one to start with; negative durations are refused by New.
type Options struct {
	// WatchdogTimeout is the lease of a lock that was acquired without one; it is renewed every third of it for as
	// long as the lock is held. 0: 30s, at least 10ms. Redisson: lockWatchdogTimeout.
	WatchdogTimeout time.Duration
	// PollInterval is the longest that a waiter sleeps without a message before it asks Redis again. 0: 5s, at least 1ms. A waiter
	// for a fair lock sleeps 5s at most, to keep its place.
	PollInterval time.Duration
	// FairWaitTimeout is how long a waiter for a fair lock may be silent before others drop it from the queue. It is the bound
	// where nothing else tells that a waiter is dead: in a cluster, unless its channels are sharded. Elsewhere a waiter for whom
	// nothing listens is dropped when it has been its turn for some 10s. All programs that share fair locks should agree on it. 0:
	// 300s, at least 1s. Redisson: fairLockWaitTimeout.
	FairWaitTimeout time.Duration
	// CommandTimeout bounds each operation on Redis, repeats and the wait for a connection included, whatever the time-outs of the
	// Redis client are. A command that was given up holds its connection for an eighth longer at most. A shorter ReadTimeout of
	// the Redis client bounds the wait for one reply. Acquire fails as soon as Redis is found to be away, without a connection or
	// without a master, while Release and Extend try again until then. 0: 3s, at least 1ms. A release
	// that hands the lock on to a waiter of this process may take as long again, where it has to wait for a connection first.
	CommandTimeout time.Duration
	// ReplicaAcks is how many replicas must have a lock before Acquire returns it, so that it is there after a failover to one
	// of them; and its prolongation before it counts. With fewer: ErrNotReplicated. It costs each of these operations a round
	// trip to the replicas. 0: none is asked. Redisson: checkLockSyncedSlaves.
	ReplicaAcks int
	// ReplicaTimeout is how long the replicas have, if ReplicaAcks is set. 0: 1s, at least 1ms. It must be shorter than
	// CommandTimeout, than a third of WatchdogTimeout, and than the Redis client's ReadTimeout. Redisson: slavesSyncTimeout.
	ReplicaTimeout time.Duration
	// PublishMode says how releases are announced and listened for. All programs that share locks must agree on it.
	PublishMode PublishMode
	// NameMapper, if set, turns the name of a lock into its key; it must be a pure function. Redisson: NameMapper.
	NameMapper func(name string) string
	// Logger takes what operators should know: lost locks, renewals and clean-ups that fail, and
	// that Redis fails locks and works again, with the cause and what to change. nil:
	// slog.Default().
	Logger *slog.Logger
	// LogNames puts the names of locks into the log, and into the texts of errors, as they are;
	// false: short hashes of them.
	LogNames bool
	// Observer is told what becomes of locks.
	Observer Observer
}

// PublishMode says which pub/sub commands announce a release.
type PublishMode int

const (
	// PublishAuto is PublishSharded on a *redis.ClusterClient whose servers can do it, as those from Redis 7.0 on can, and PublishPlain everywhere
	// else, as Redisson has it. The servers are asked (PUBSUB SHARDNUMSUB) when it matters for the first time; one that
	// refuses to tell is PublishPlain. Until the answer is there, releases are announced as with PublishBoth.
	PublishAuto PublishMode = iota
	// PublishPlain uses PUBLISH and SUBSCRIBE.
	PublishPlain
	// PublishSharded uses SPUBLISH and SSUBSCRIBE.
	PublishSharded
	// PublishBoth publishes with both and listens to both: for fleets in which some use one and some the
	// other, such as clusters shared with Redisson 3.22 to 3.27, which chooses by chance.
	PublishBoth
)

var (
	publishPlain   = []string{"PUBLISH"}
	publishSharded = []string{"SPUBLISH"}
	publishBoth    = []string{"PUBLISH", "SPUBLISH"}
)

func (m PublishMode) publishCommands() []string {
	switch m {
	case PublishSharded:
		return publishSharded
	case PublishBoth:
		return publishBoth
	default:
		return publishPlain
	}
}

// The shortest durations that can work.
const (
	minLease    = time.Millisecond // Redis counts in milliseconds
	minWatchdog = 10 * time.Millisecond
)

// maxNameLen bounds the key of a lock, in bytes. Every command carries it.
const maxNameLen = 64 << 10

// withDefaults fills in what was left at zero and refuses what can never work.
func (o Options) withDefaults() (Options, error) {
	for _, d := range []struct {
		field      string
		value      *time.Duration
		std, least time.Duration
	}{
		{"WatchdogTimeout", &o.WatchdogTimeout, 30 * time.Second, minWatchdog},
		{"PollInterval", &o.PollInterval, 5 * time.Second, time.Millisecond},
		{"FairWaitTimeout", &o.FairWaitTimeout, 300 * time.Second, time.Second},
		{"CommandTimeout", &o.CommandTimeout, 3 * time.Second, time.Millisecond},
		{"ReplicaTimeout", &o.ReplicaTimeout, time.Second, time.Millisecond},
	} {
		if *d.value == 0 {
			*d.value = d.std
		}
		if *d.value < d.least {
			return o, invalid(ErrInvalidOptions, "core.Options.%s is %s; it must be at least %s, or 0 for %s", d.field, *d.value, d.least, d.std)
		}
	}
	if o.ReplicaAcks < 0 {
		return o, invalid(ErrInvalidOptions, "core.Options.ReplicaAcks is %d; use 0 for none, or the number of replicas", o.ReplicaAcks)
	}
	if most := min(o.CommandTimeout, o.WatchdogTimeout/3); o.ReplicaAcks > 0 && o.ReplicaTimeout >= most {
		return o, invalid(ErrInvalidOptions, "core.Options.ReplicaTimeout is %s; it must be shorter than CommandTimeout and a third of WatchdogTimeout: %s", o.ReplicaTimeout, most)
	}
	if o.PublishMode < PublishAuto || o.PublishMode > PublishBoth {
		return o, invalid(ErrInvalidOptions, "core.Options.PublishMode is %d; use PublishAuto, PublishPlain, PublishSharded or PublishBoth", o.PublishMode)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// checkRedis refuses clients on which locks cannot be kept.
func checkRedis(rdb redis.UniversalClient, opts Options) error {
	switch c := rdb.(type) {
	case nil:
		return invalid(ErrInvalidOptions, "core.New needs a Redis client, not nil")
	case *redis.Ring:
		return invalid(ErrInvalidOptions, "core.New takes no *redis.Ring: it moves keys to other servers when one is down, and a lock would have two holders; use *redis.Client or *redis.ClusterClient")
	case *redis.Client:
		if c == nil {
			return invalid(ErrInvalidOptions, "core.New needs a Redis client, not a nil *redis.Client")
		}
		return checkTimeouts(c.Options().ReadTimeout, c.Options().WriteTimeout, opts)
	case *redis.ClusterClient:
		if c == nil {
			return invalid(ErrInvalidOptions, "core.New needs a Redis client, not a nil *redis.ClusterClient")
		}
		return checkTimeouts(c.Options().ReadTimeout, c.Options().WriteTimeout, opts)
	}
	if opts.ReplicaAcks > 0 {
		return invalid(ErrInvalidOptions, "core.Options.ReplicaAcks needs a *redis.Client or *redis.ClusterClient, not a %T: the replicas must be asked on the connection of the command", rdb)
	}
	return nil
}

func checkTimeouts(read, write time.Duration, opts Options) error {
	name, off := "WriteTimeout", write <= 0
	if read <= 0 {
		name, off = "ReadTimeout", true
	}
	if off {
		return invalid(ErrInvalidOptions, "core.New: the Redis client's %s is off; a command on a dead connection would hang for ever; set one, such as 3s", name)
	}
	if opts.ReplicaAcks > 0 && read <= opts.ReplicaTimeout {
		return invalid(ErrInvalidOptions, "core.Options.ReplicaTimeout is %s; it must be shorter than the Redis client's ReadTimeout, which is %s", opts.ReplicaTimeout, read)
	}
	return nil
}

// WaitForever as a WaitTime waits until the context ends, also through an outage of Redis.
const WaitForever time.Duration = -1

// AcquireOptions say how long a caller waits for a lock, and how long it keeps it.
type AcquireOptions struct {
	// WaitTime bounds the time spent waiting behind other holders. 0: one attempt; WaitForever: until ctx ends. Other
	// negative values are refused. Redisson: waitTime.
	//
	// Acquire fails at once when Redis cannot be reached or refuses for a reason that may pass: it is loading, read-only after a
	// failover, out of memory, or its cluster is down. With WaitForever, Acquire waits through that. It asks again with growing
	// pauses, of one lock up to PollInterval, and calls Observer.Retrying. What does not pass by itself is returned at once: a wrong
	// password, a missing permission, ErrWrongKind.
	WaitTime time.Duration
	// LeaseTime is how long the lock is held at most. 0: for as long as the holder wants, renewed by the watchdog. Whole
	// milliseconds count; between 0 and 1ms, and below 0, is refused. Redisson: leaseTime.
	LeaseTime time.Duration
	// MaxWaiters bounds how many callers of this process wait for the name: one more is refused with ErrTooManyWaiters. It does not
	// matter without WaitTime. 0: 1024; -1: no bound; other negative values are refused.
	MaxWaiters int
}

func (o AcquireOptions) check() error {
	switch {
	case o.WaitTime < 0 && o.WaitTime != WaitForever:
		return invalid(ErrInvalidOptions, "core.AcquireOptions.WaitTime is %s; use 0 for one attempt, core.WaitForever, or a positive duration", o.WaitTime)
	case o.LeaseTime != 0 && o.LeaseTime < minLease:
		return invalid(ErrInvalidOptions, "core.AcquireOptions.LeaseTime is %s; use 0 for the watchdog, or at least %s", o.LeaseTime, minLease)
	case o.MaxWaiters < -1:
		return invalid(ErrInvalidOptions, "core.AcquireOptions.MaxWaiters is %d; use 0 for %d, -1 for no bound, or a positive number", o.MaxWaiters, defaultMaxWaiters)
	}
	return nil
}

const defaultMaxWaiters = 1024

// waiters is MaxWaiters as a number that can be compared.
func (o AcquireOptions) waiters() int32 {
	switch o.MaxWaiters {
	case 0:
		return defaultMaxWaiters
	case -1:
		return math.MaxInt32
	}
	return int32(min(o.MaxWaiters, math.MaxInt32))
}
