package redisop

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A Fault is a reason why locks do not work that an operator can do something about.
type Fault struct {
	Cause  string // what is wrong
	Change string // what to change
	door   bool   // no command gets through: any answer shows that it is over
	Heals  bool   // by itself, or without a change here: it makes sense to wait for that
}

var (
	faultUnreachable    = &Fault{"Redis cannot be reached", "start Redis, or correct the address of the Redis client or the network", true, true}
	faultConnection     = &Fault{"the connection to Redis does not work", "see error", true, false}
	faultSilent         = &Fault{"Redis does not answer in time", "look at the load of Redis (SLOWLOG, INFO) and at the network, or raise core.Options.CommandTimeout", true, true}
	faultPoolEmpty      = &Fault{"the pool of the Redis client has no free connection", "raise PoolSize of the Redis client, or give locks a client of their own", true, true}
	faultClientClosed   = &Fault{"the Redis client is closed", "close the core.Client first", true, false}
	faultLogin          = &Fault{"Redis refuses the user name or the password", "correct Username and Password of the Redis client", true, false}
	faultTooManyClients = &Fault{"Redis has too many clients", "raise maxclients of Redis, or lower PoolSize of its clients", true, true}
	faultProtected      = &Fault{"Redis is in protected mode", "set a password, or bind Redis to an address that only your services reach", true, false}
	faultLoading        = &Fault{"Redis is loading its data", "wait; if it takes long, look at the log of Redis", true, true}
	faultStaleReplica   = &Fault{"Redis is a replica without its master", "look at the master, or have the Redis client connect to it", true, true}
	faultClusterDown    = &Fault{"the cluster is down", "look at CLUSTER INFO, and at the nodes that serve the missing slots", true, true}
	faultBusy           = &Fault{"Redis is busy with a script", "look at SLOWLOG, and end the script by SCRIPT KILL", true, true}

	faultPermission     = &Fault{"the Redis user lacks a permission", "grant what docs/operations.md lists under Access; Client.Ping says what is missing", false, false}
	faultOutOfMemory    = &Fault{"Redis is out of memory", "raise maxmemory of Redis, or free memory; keep maxmemory-policy noeviction", false, true}
	faultReadOnly       = &Fault{"Redis is a read-only replica", "have the Redis client connect to the master, by Sentinel or a cluster client where it moves", false, true}
	faultCannotSave     = &Fault{"Redis refuses writes because it cannot save its data", "look at the disk of Redis and at its log", false, true}
	faultTooFewReplicas = &Fault{"Redis refuses writes because it has too few replicas", "look at the replicas, or lower min-replicas-to-write of Redis", false, true}
	faultNoCommand      = &Fault{"Redis lacks a command", "use Redis 7.0 or newer, without a proxy that holds commands back", false, false}
	faultOther          = &Fault{"Redis refuses a command", "see error", false, false}
)

// answers are the error replies of Redis, by how they begin. nil: no fault, but part of how Redis
// and locks work.
var answers = []struct {
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
	{"NOSCRIPT", nil},
	{"MOVED", nil},
	{"ASK", nil},
	{"TRYAGAIN", nil},
	{"CROSSSLOT", nil},
	{"", faultOther},
}

// FaultOf returns the fault that an error of an operation is due to; nil: none.
func FaultOf(err error) *Fault {
	var network net.Error
	switch {
	case err == nil, err == redis.Nil, isWrongType(err), errors.Is(err, ErrWrongKind), errors.Is(err, ErrNotReplicated), errors.Is(err, batch.ErrClosed):
		return nil
	case errors.Is(err, lua.ErrUnexpected):
		return faultOther
	case errors.Is(err, redis.ErrClosed):
		return faultClientClosed
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return faultPoolEmpty
	case IsDial(err):
		return faultUnreachable
	case IsAnswer(err):
		for _, answer := range answers {
			if HasCode(err, answer.prefix) {
				return answer.fault
			}
		}
	case errors.Is(err, batch.ErrUnsent), errors.Is(err, batch.ErrUnanswered), errors.Is(err, ErrTimeout), errors.Is(err, ErrAborted):
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

// IsPermission reports whether a reply, or what was made of one, says that the user may not do
// something.
func IsPermission(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "The user executing the script"))
}

// Heals reports whether the cause of an error may pass without a change to this program or its rights: an outage, a failover, a
// full memory. What will be the same in an hour does not heal.
func Heals(err error) bool {
	if HasCode(err, "TRYAGAIN", "MOVED", "ASK") {
		return true
	}
	f := FaultOf(err)
	return f != nil && f.Heals
}

// Named reports whether the fault says more than that Redis refused.
func (f *Fault) Named() bool { return f != faultOther }
