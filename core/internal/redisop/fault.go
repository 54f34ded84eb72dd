package redisop

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A Fault is a reason why locks fail that an operator can fix.
type Fault struct {
	Class     string // short, for metrics
	Cause     string // the fault itself
	Change    string // what to change
	Heals     bool   // may pass without a change to this program, so waiting makes sense
	Permanent bool   // lasts until somebody changes the set-up, so the error matches ErrMisconfigured
	blocksAll bool   // no command gets through, so any reply shows that the fault is over
}

var (
	faultUnreachable = &Fault{
		Class:     "unreachable",
		Cause:     "Redis cannot be reached",
		Change:    "start Redis, or correct the address of the Redis client or the network",
		blocksAll: true,
		Heals:     true,
	}
	faultConnection = &Fault{
		Class:     "connection",
		Cause:     "the connection to Redis does not work",
		Change:    "see the error",
		blocksAll: true,
	}
	faultSilent = &Fault{
		Class:     "silent",
		Cause:     "Redis does not answer in time",
		Change:    "check the load of Redis (SLOWLOG, INFO) and the network, or raise core.Options.CommandTimeout",
		blocksAll: true,
		Heals:     true,
	}
	faultPoolEmpty = &Fault{
		Class:     "pool_empty",
		Cause:     "the pool of the Redis client has no free connection",
		Change:    "raise PoolSize of the Redis client, or give locks their own client",
		blocksAll: true,
		Heals:     true,
	}
	faultClientClosed = &Fault{
		Class:     "client_closed",
		Cause:     "the Redis client is closed",
		Change:    "close the core.Client first",
		blocksAll: true,
	}
	faultLogin = &Fault{
		Class:     "login",
		Cause:     "Redis refuses the user name or the password",
		Change:    "correct Username and Password of the Redis client",
		blocksAll: true,
	}
	faultTooManyClients = &Fault{
		Class:     "too_many_clients",
		Cause:     "Redis has too many clients",
		Change:    "raise maxclients of Redis, or lower PoolSize of its clients",
		blocksAll: true,
		Heals:     true,
	}
	faultProtected = &Fault{
		Class:     "protected",
		Cause:     "Redis is in protected mode",
		Change:    "set a password, or bind Redis to an address that only your services can reach",
		blocksAll: true,
	}
	faultLoading = &Fault{
		Class:     "loading",
		Cause:     "Redis is loading its data",
		Change:    "wait; if it takes long, check the log of Redis",
		blocksAll: true,
		Heals:     true,
	}
	faultStaleReplica = &Fault{
		Class:     "stale_replica",
		Cause:     "Redis is a replica without its master",
		Change:    "check the master, or make the Redis client connect to it",
		blocksAll: true,
		Heals:     true,
	}
	faultClusterDown = &Fault{
		Class:     "cluster_down",
		Cause:     "the cluster is down",
		Change:    "check CLUSTER INFO and the nodes that serve the missing slots",
		blocksAll: true,
		Heals:     true,
	}
	faultBusy = &Fault{
		Class:     "busy",
		Cause:     "Redis is busy with a script",
		Change:    "check SLOWLOG, and end the script with SCRIPT KILL",
		blocksAll: true,
		Heals:     true,
	}

	faultPermission = &Fault{
		Class:  "permission",
		Cause:  "the Redis user lacks a permission",
		Change: "grant what docs/operations.md lists under Access; Client.Ping says what is missing",
	}
	faultOutOfMemory = &Fault{
		Class:  "out_of_memory",
		Cause:  "Redis is out of memory",
		Change: "raise maxmemory of Redis, or free memory; keep maxmemory-policy noeviction",
		Heals:  true,
	}
	faultReadOnly = &Fault{
		Class:  "read_only",
		Cause:  "Redis is a read-only replica",
		Change: "make the Redis client connect to the master; if the master can move, use Sentinel or a cluster client",
		Heals:  true,
	}
	faultCannotSave = &Fault{
		Class:  "cannot_save",
		Cause:  "Redis refuses writes because it cannot save its data",
		Change: "check the disk and the log of Redis",
		Heals:  true,
	}
	faultTooFewReplicas = &Fault{
		Class:  "too_few_replicas",
		Cause:  "Redis refuses writes because it has too few replicas",
		Change: "check the replicas, or lower min-replicas-to-write of Redis",
		Heals:  true,
	}
	faultNoCommand = &Fault{
		Class:  "no_command",
		Cause:  "Redis lacks a command",
		Change: "use Redis 6.2 or newer, Valkey or KeyDB, without a proxy that blocks commands; Client.Ping says what is missing",
	}
	faultOneNode = &Fault{
		Class:     "one_node",
		Cause:     redisclient.OneNode,
		Change:    redisclient.UseCluster,
		Permanent: true,
	}
	faultNoCluster = &Fault{
		Class:     "no_cluster",
		Cause:     redisclient.NoCluster,
		Change:    redisclient.UseServer,
		blocksAll: true,
		Permanent: true,
	}
	faultOther = &Fault{
		Class:  "other",
		Cause:  "Redis refuses a command",
		Change: "see the error",
	}
)

// errorReplies lists the error replies of Redis by prefix. nil: not a fault, because locks expect
// the reply.
var errorReplies = []struct {
	prefix string
	fault  *Fault
}{
	{"NOAUTH", faultLogin},
	{"WRONGPASS", faultLogin},
	{"AUTH ", faultLogin},
	{"Client sent AUTH", faultLogin},
	{"invalid password", faultLogin},
	{"NOPERM", faultPermission},
	{"The user executing the script", faultPermission},
	{"ACL failure in script", faultPermission},
	{"OOM", faultOutOfMemory},
	{"READONLY", faultReadOnly},
	{"MISCONF", faultCannotSave},
	{"NOREPLICAS", faultTooFewReplicas},
	{"MASTERDOWN", faultStaleReplica},
	{"CLUSTERDOWN", faultClusterDown},
	{"LOADING", faultLoading},
	{"BUSY", faultBusy},
	{"max number of clients", faultTooManyClients},
	{"DENIED", faultProtected},
	{"unknown command", faultNoCommand},
	{"unknown subcommand", faultNoCommand},
	{"Unknown Redis command", faultNoCommand},
	{"NOSCRIPT", nil},
	{"MOVED", nil},
	{"ASK", nil},
	{"TRYAGAIN", nil},
	{"CROSSSLOT", nil},
	{"", faultOther},
}

// FaultOf returns the fault that caused the error of an operation, or nil if none did.
func FaultOf(err error) *Fault {
	var network net.Error
	var known *FaultError
	var wrong *redisclient.WrongError
	switch {
	case err == nil, err == redis.Nil, isWrongType(err),
		errors.Is(err, ErrWrongKind), errors.Is(err, ErrNotReplicated), errors.Is(err, batch.ErrClosed):
		return nil
	case errors.As(err, &known):
		return known.Fault
	case errors.As(err, &wrong) && wrong.Cluster:
		return faultNoCluster
	case wrong != nil:
		return faultOneNode
	case errors.Is(err, lua.ErrUnexpected):
		return faultOther
	case errors.Is(err, redis.ErrClosed):
		return faultClientClosed
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return faultPoolEmpty
	case IsDial(err):
		return faultUnreachable
	case IsAnswer(err):
		for _, answer := range errorReplies {
			if HasCode(err, answer.prefix) {
				return answer.fault
			}
		}
	case errors.Is(err, batch.ErrUnsent), errors.Is(err, batch.ErrUnanswered),
		errors.Is(err, ErrTimeout), errors.Is(err, ErrAborted):
		return faultSilent
	case errors.As(err, &network):
		if network.Timeout() {
			return faultSilent
		}
		return faultUnreachable
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return faultUnreachable
	}
	return faultConnection
}

// A FaultError is an error with its cause in plain words, and what to change.
type FaultError struct {
	*Fault
	err error
}

// Explain adds the fault and the change to make to an error of Redis or of the connection to it.
func Explain(err error) error {
	f := FaultOf(err)
	if known := (*FaultError)(nil); f == nil || errors.As(err, &known) {
		return err
	}
	return &FaultError{f, err}
}

func (e *FaultError) Error() string { return e.Cause + ": " + e.err.Error() + " (" + e.Change + ")" }
func (e *FaultError) Unwrap() error { return e.err }

// Remedy returns what to change.
func (e *FaultError) Remedy() string { return e.Change }

// Is reports whether target is ErrMisconfigured, and fits the fault.
func (e *FaultError) Is(target error) bool { return target == ErrMisconfigured && e.Permanent }

// IsPermission reports whether an error is, or contains, a reply that the Redis user lacks a
// permission.
func IsPermission(err error) bool {
	return err != nil &&
		(strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "The user executing the script") ||
			strings.Contains(err.Error(), "ACL failure in script"))
}

// Heals reports whether the cause of an error may pass without a change to this program or its
// permissions, as an outage, a failover or a full memory does.
func Heals(err error) bool {
	if f := FaultOf(err); f != nil {
		return f.Heals
	}
	return HasCode(err, "TRYAGAIN", "MOVED", "ASK")
}

// Named reports whether the fault is more specific than that Redis refused a command.
func (f *Fault) Named() bool { return f != faultOther }
