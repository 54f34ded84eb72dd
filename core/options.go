package core

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// Options configures a Client. The zero value is a good default. New refuses negative durations.
type Options struct {
	// WatchdogTimeout is the lease of a lock that is acquired without a LeaseTime. While the lock
	// is held, the watchdog renews the lease every third of this time. 0: 30s, at least 10ms.
	// Redisson: lockWatchdogTimeout.
	WatchdogTimeout time.Duration
	// PollInterval is how long a waiter sleeps at most before it retries without a message. While
	// its subscription is known to work, it sleeps up to seven times as long, but never beyond the
	// TTL of the holder. A waiter with a WaitTime also retries in the middle and at the end of it.
	// The first waiter of a client for a fair lock sleeps 5s at most, to keep its place; those
	// behind it sleep longer the farther back they are. 0: 5s, at least 1ms.
	PollInterval time.Duration
	// FairWaitTimeout is how long a waiter for a fair lock may be silent before other waiters drop
	// it from the queue, even if the lock is not free. Once the lock is free, a first waiter that
	// has no listener or does not take it is dropped within about 15s. All programs that share fair
	// locks should use the same value. 0: 300s, at least 1s. Redisson: fairLockWaitTimeout.
	FairWaitTimeout time.Duration
	// CommandTimeout bounds each operation on Redis, including retries and the wait for a
	// connection, whatever the timeouts of the Redis client are. An abandoned command keeps its
	// connection for an eighth longer at most. If the ReadTimeout of the Redis client is shorter,
	// it bounds the wait for one reply. A connection that was idle has a third of the time to answer;
	// then a new one is tried. If Redis has no master or cannot be connected to, or TLS fails, Acquire
	// fails at once, while Release and Extend retry until CommandTimeout is over. Once a server has
	// been silent for CommandTimeout, Acquire fails at once until it answers. A release that hands
	// the lock to a waiter of this process may take twice as long if it has to wait for a
	// connection first. 0: 3s, at least 1ms.
	CommandTimeout time.Duration
	// ReplicaAcks is how many replicas must confirm a lock before Acquire returns it, so that the
	// lock survives a failover to one of them. They must also confirm re-entries, extensions and
	// renewals. With fewer acks, the operation fails with ErrNotReplicated. Each of these
	// operations costs a round trip to the replicas. 0: replicas need not confirm anything.
	// Redisson: checkLockSyncedSlaves.
	ReplicaAcks int
	// ReplicaTimeout is how long to wait for ReplicaAcks. It must be shorter than CommandTimeout, a
	// third of WatchdogTimeout, and the Redis client's ReadTimeout. 0: 1s, at least 1ms. Redisson:
	// slavesSyncTimeout.
	ReplicaTimeout time.Duration
	// MaxWaiting bounds how many callers of this client wait in Acquire or Await at a time, for all
	// names together. One more gets ErrTooManyWaiters. A caller that gets its lock at the first
	// attempt, or finds a count of 0, does not count. A waiting caller takes about 6 KB here, besides
	// what its request takes, so the default, eight names with as many as AcquireOptions.MaxWaiters
	// allows, is about 50 MB. 0: 8192; -1: no bound; other negative values are refused.
	MaxWaiting int
	// PublishMode selects the pub/sub commands for releases. All programs that share locks must use
	// the same mode.
	PublishMode PublishMode
	// ClientID names this client in Redis and in logs, to show which process holds a lock: letters,
	// digits, '.', '_' and '-', at most 28. A random part follows it, so clients may have the same
	// name. Empty: the host name, of which it keeps the last part, and the process ID. The owner of
	// a hold is then web-1.4242.k3j9x2ab:7. Redisson: the client's UUID.
	ClientID string
	// NameMapper maps the name of a lock to its key. nil: the key is the name. It must be a pure
	// function. Redisson: NameMapper.
	NameMapper func(name string) string
	// Logger receives lost locks, failed renewals and clean-ups, and faults of Redis, with the
	// cause and what to change. nil: slog.Default().
	Logger *slog.Logger
	// Delegation signs and verifies the tokens with which a call enters the locks of its caller; see
	// Lease.Delegate and WithDelegation. The zero value does neither.
	Delegation delegation.Service
	// LogNames puts the names of locks into logs and error texts. Without it, they have short
	// hashes of the names.
	LogNames bool
	// Observer receives events of locks.
	Observer Observer
	// Annotate says for which request a lock is held or waited for, by the context of Acquire.
	// Client.Holds and Client.Waits call it, and a loss does, but never Acquire. A guard fills in an
	// empty Route.
	Annotate func(ctx context.Context) Annotation
}

// A PublishMode selects the pub/sub commands that announce a release.
type PublishMode int

const (
	// PublishAuto is PublishSharded on a *redis.ClusterClient whose servers support it (Redis 7.0
	// and newer), and PublishPlain everywhere else, as in Redisson. The client asks a server when
	// it first needs the mode, with PUBSUB SHARDNUMSUB. If the server refuses that command, the
	// mode is PublishPlain. Until the server has answered, releases are announced as with
	// PublishBoth.
	PublishAuto PublishMode = iota
	// PublishPlain uses PUBLISH and SUBSCRIBE.
	PublishPlain
	// PublishSharded uses SPUBLISH and SSUBSCRIBE.
	PublishSharded
	// PublishBoth publishes with both and subscribes to both. Use it if programs use different
	// modes, such as in a cluster shared with Redisson 3.22 to 3.27, which picks one at random.
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
	minLease    = time.Millisecond // TTLs in Redis are whole milliseconds
	minWatchdog = 10 * time.Millisecond
)

// maxNameLen limits the key of a lock, in bytes. Every command contains it.
const maxNameLen = 64 << 10

// withDefaults replaces zero values by defaults and refuses options that can never work.
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
			return o, invalid(ErrInvalidOptions,
				"core.Options.%s is %s; it must be at least %s, or 0 for %s", d.field, *d.value, d.least, d.std)
		}
		*d.value = min(*d.value, longest)
	}
	if o.ReplicaAcks < 0 {
		return o, invalid(ErrInvalidOptions,
			"core.Options.ReplicaAcks is %d; use 0 for none, or the number of replicas", o.ReplicaAcks)
	}
	if most := min(o.CommandTimeout, o.WatchdogTimeout/3); o.ReplicaAcks > 0 && o.ReplicaTimeout >= most {
		return o, invalid(ErrInvalidOptions,
			"core.Options.ReplicaTimeout is %s; it must be shorter than CommandTimeout and a third of WatchdogTimeout: %s",
			o.ReplicaTimeout, most)
	}
	switch {
	case o.MaxWaiting == 0:
		o.MaxWaiting = defaultMaxWaiting
	case o.MaxWaiting == -1:
		o.MaxWaiting = math.MaxInt
	case o.MaxWaiting < -1:
		return o, invalid(ErrInvalidOptions,
			"core.Options.MaxWaiting is %d; use 0 for %d, -1 for no bound, or a positive number",
			o.MaxWaiting, defaultMaxWaiting)
	}
	if o.PublishMode < PublishAuto || o.PublishMode > PublishBoth {
		return o, invalid(ErrInvalidOptions,
			"core.Options.PublishMode is %d; use PublishAuto, PublishPlain, PublishSharded or PublishBoth",
			o.PublishMode)
	}
	if why := checkClientName(o.ClientID); why != "" {
		return o, invalid(ErrInvalidOptions,
			"core.Options.ClientID %q %s; use a short name such as the pod's, or none", o.ClientID, why)
	}
	if err := o.Delegation.Check(); err != nil {
		return o, invalid(ErrInvalidOptions, "core.Options.Delegation: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// longest is the longest duration that the engine works with: sums of several do not overflow.
const longest = 50 * 365 * 24 * time.Hour

// checkRedis refuses Redis clients that cannot keep locks safely. It returns the client that the
// commands of locks are sent to.
func checkRedis(rdb redis.UniversalClient, opts Options) (redisclient.Client, error) {
	c, err := redisclient.Of(rdb)
	if err != nil {
		return c, invalid(ErrInvalidOptions, "core.New: %w", err)
	}
	read, write := c.Timeouts()
	return c, checkTimeouts(read, write, opts)
}

func checkTimeouts(read, write time.Duration, opts Options) error {
	name, off := "WriteTimeout", write <= 0
	if read <= 0 {
		name, off = "ReadTimeout", true
	}
	if off {
		return invalid(ErrInvalidOptions, "core.New: the Redis client's %s is off, "+
			"so a command on a dead connection would hang forever; set it, for example to 3s", name)
	}
	if opts.ReplicaAcks > 0 && read <= opts.ReplicaTimeout {
		return invalid(ErrInvalidOptions,
			"core.Options.ReplicaTimeout is %s; it must be shorter than the Redis client's ReadTimeout, which is %s",
			opts.ReplicaTimeout, read)
	}
	return nil
}

// WaitForever is a WaitTime without limit: Acquire waits until its context ends, also through an
// outage of Redis.
const WaitForever time.Duration = -1

// AcquireOptions configures one call of Acquire.
type AcquireOptions struct {
	// WaitTime bounds how long Acquire waits while other owners hold the lock. 0: one attempt;
	// WaitForever: until ctx ends. Other negative values are refused. Redisson: waitTime.
	//
	// When WaitTime is over, the first waiter of this process for the name asks Redis once more, in
	// case a message was lost, and waits up to 500ms for the answer. Those whose time ends together
	// with its time take that answer.
	//
	// Acquire does not wait any longer if Redis cannot be reached, or refuses for a reason that may
	// pass: it is loading, out of memory, or its cluster is down. It fails within CommandTimeout, and
	// at once if the server has been silent for that long. Only if it has reached a read-only
	// replica, it goes on until WaitTime is over: there may be a primary soon. With WaitForever, Acquire waits until that is over. It retries
	// after growing pauses, up to PollInterval for a single lock, and calls Observer.Retrying.
	// Errors that do not pass by themselves are returned at once: a wrong password, a missing
	// permission, ErrMisconfigured in general, ErrWrongKind.
	WaitTime time.Duration
	// LeaseTime is how long the lock is held at most, in whole milliseconds. 0: the watchdog renews
	// the lease until it is released. Negative values and values between 0 and 1ms are refused.
	// Redisson: leaseTime.
	LeaseTime time.Duration
	// MaxWaiters bounds how many callers of this process wait for the name. One more gets
	// ErrTooManyWaiters. It has no effect without a WaitTime. 0: 1024; -1: no bound; other negative
	// values are refused.
	MaxWaiters int
}

func (o AcquireOptions) check() error {
	switch {
	case o.WaitTime < 0 && o.WaitTime != WaitForever:
		return invalid(ErrInvalidOptions,
			"core.AcquireOptions.WaitTime is %s; use 0 for one attempt, core.WaitForever, or a positive duration",
			o.WaitTime)
	case o.LeaseTime != 0 && o.LeaseTime < minLease:
		return invalid(ErrInvalidOptions,
			"core.AcquireOptions.LeaseTime is %s; use 0 for the watchdog, or at least %s", o.LeaseTime, minLease)
	case o.MaxWaiters < -1:
		return invalid(ErrInvalidOptions,
			"core.AcquireOptions.MaxWaiters is %d; use 0 for %d, -1 for no bound, or a positive number",
			o.MaxWaiters, defaultMaxWaiters)
	}
	return nil
}

const (
	defaultMaxWaiters = 1024
	defaultMaxWaiting = 8 * defaultMaxWaiters
)

// waiters returns MaxWaiters with its special values replaced.
func (o AcquireOptions) waiters() int32 {
	switch o.MaxWaiters {
	case 0:
		return defaultMaxWaiters
	case -1:
		return math.MaxInt32
	}
	return int32(min(o.MaxWaiters, math.MaxInt32))
}
