package core

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A fault is a reason why locks do not work that an operator can do something about.
type fault struct {
	cause  string // what is wrong
	change string // what to change
	door   bool   // no command gets through: any answer shows that it is over
	heals  bool   // by itself, or without a change here: it makes sense to wait for that
}

var (
	faultUnreachable    = &fault{"Redis cannot be reached", "start Redis, or correct the address of the Redis client or the network", true, true}
	faultSilent         = &fault{"Redis does not answer in time", "look at the load of Redis (SLOWLOG, INFO) and at the network, or raise core.Options.CommandTimeout", true, true}
	faultPoolEmpty      = &fault{"the pool of the Redis client has no free connection", "raise PoolSize of the Redis client, or give locks a client of their own", true, true}
	faultClientClosed   = &fault{"the Redis client is closed", "close the core.Client first", true, false}
	faultLogin          = &fault{"Redis refuses the user name or the password", "correct Username and Password of the Redis client", true, false}
	faultTooManyClients = &fault{"Redis has too many clients", "raise maxclients of Redis, or lower PoolSize of its clients", true, true}
	faultProtected      = &fault{"Redis is in protected mode", "set a password, or bind Redis to an address that only your services reach", true, false}
	faultLoading        = &fault{"Redis is loading its data", "wait; if it takes long, look at the log of Redis", true, true}
	faultStaleReplica   = &fault{"Redis is a replica without its master", "look at the master, or have the Redis client connect to it", true, true}
	faultClusterDown    = &fault{"the cluster is down", "look at CLUSTER INFO, and at the nodes that serve the missing slots", true, true}
	faultBusy           = &fault{"Redis is busy with a script", "look at SLOWLOG, and end the script by SCRIPT KILL", true, true}

	faultPermission     = &fault{"the Redis user lacks a permission", "grant what docs/operations.md lists under Access; Client.Ping says what is missing", false, false}
	faultOutOfMemory    = &fault{"Redis is out of memory", "raise maxmemory of Redis, or free memory; keep maxmemory-policy noeviction", false, true}
	faultReadOnly       = &fault{"Redis is a read-only replica", "have the Redis client connect to the master, by Sentinel or a cluster client where it moves", false, true}
	faultCannotSave     = &fault{"Redis refuses writes because it cannot save its data", "look at the disk of Redis and at its log", false, true}
	faultTooFewReplicas = &fault{"Redis refuses writes because it has too few replicas", "look at the replicas, or lower min-replicas-to-write of Redis", false, true}
	faultNoCommand      = &fault{"Redis lacks a command", "use Redis 7.0 or newer, without a proxy that holds commands back", false, false}
	faultOther          = &fault{"Redis refuses a command", "see error", false, false}
)

// answers are the error replies of Redis, by how they begin. nil: no fault, but part of how Redis
// and locks work.
var answers = []struct {
	prefix string
	fault  *fault
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

// faultOf returns the fault that an error is due to; nil: none.
func faultOf(err error) *fault {
	var timeout net.Error
	switch {
	case err == nil, err == ErrWrongKind, wrongType(err), err == redis.Nil,
		errors.Is(err, ErrRecorded), errors.Is(err, ErrClosed), errors.Is(err, ErrNotReplicated), errors.Is(err, batch.ErrClosed):
		return nil
	case errors.Is(err, lua.ErrUnexpected):
		return faultOther
	case errors.Is(err, redis.ErrClosed):
		return faultClientClosed
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return faultPoolEmpty
	case isDial(err):
		return faultUnreachable
	case isAnswer(err):
		for _, answer := range answers {
			if hasCode(err, answer.prefix) {
				return answer.fault
			}
		}
	case errors.Is(err, batch.ErrUnsent), errors.Is(err, batch.ErrUnanswered), err == errTimeout, errors.As(err, &timeout) && timeout.Timeout():
		return faultSilent
	}
	return faultUnreachable
}

// isPermission reports whether a reply, or what was made of one, says that the user may not do
// something.
func isPermission(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "The user executing the script"))
}

// heals reports whether the cause of an error may pass without a change to this program or its
// rights: an outage, a failover, a full memory. What will be the same in an hour does not heal.
func heals(err error) bool {
	if hasCode(err, "TRYAGAIN", "MOVED", "ASK") {
		return true
	}
	f := faultOf(err)
	return f != nil && f.heals
}
