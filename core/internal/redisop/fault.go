package redisop

import (
	"github.com/reqlock/reqlock/internal/redisacl"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A Fault is a reason why locks fail that an operator can fix.
type Fault struct {
	// Class is short, for metrics.
	Class string
	Cause string
	// Change says what to change.
	Change string
	// Heals is true if the fault may pass without a change to this program, so waiting makes sense.
	Heals bool
	// Permanent is true if the fault lasts until an operator changes the set-up, so the error
	// matches ErrMisconfigured.
	Permanent bool
	// blocksAll is true if no command gets through, so any reply shows that the fault is over.
	blocksAll bool
}

var (
	faultUnreachable = &Fault{
		Class:     "unreachable",
		Cause:     "Redis cannot be reached",
		Change:    "start Redis, or correct the address of the Redis client or the network; if a proxy closes the connection, start the server behind it",
		blocksAll: true,
		Heals:     true,
	}
	faultConnection = &Fault{
		Class:     "connection",
		Cause:     "the connection to Redis does not work",
		Change:    "see the error, and run reqlock doctor",
		blocksAll: true,
	}
	faultForeign = &Fault{
		Class:     "connection",
		Cause:     "what answers is not Redis",
		Change:    "correct the host and the port of the Redis client",
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
		Permanent: true,
	}
	faultLogin = &Fault{
		Class:     "login",
		Cause:     "Redis refuses the user name or the password",
		Change:    "correct Username and Password of the Redis client",
		blocksAll: true,
		Permanent: true,
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
		Permanent: true,
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
	faultTLSName = &Fault{
		Class:     "tls",
		Cause:     "the certificate of Redis is for another name",
		Change:    "connect by a name that the certificate has, or set TLSConfig.ServerName of the Redis client to one",
		blocksAll: true,
		Permanent: true,
	}
	faultTLSAuthority = &Fault{
		Class:     "tls",
		Cause:     "the certificate of Redis is signed by an unknown authority",
		Change:    "add the certificate of that authority to TLSConfig.RootCAs of the Redis client",
		blocksAll: true,
		Permanent: true,
	}
	faultTLSCertificate = &Fault{
		Class:     "tls",
		Cause:     "the certificate of Redis is not valid",
		Change:    "renew the certificate of Redis, or check the clock of this machine",
		blocksAll: true,
		Permanent: true,
	}
	faultTLSRefused = &Fault{
		Class:     "tls",
		Cause:     "Redis refuses the TLS connection",
		Change:    "set TLSConfig.Certificates of the Redis client to a certificate that Redis accepts (tls-auth-clients), and a TLS version that both know",
		blocksAll: true,
		Permanent: true,
	}
	faultPlainPort = &Fault{
		Class:     "tls",
		Cause:     "the Redis client speaks TLS to a port that does not",
		Change:    "use the TLS port of Redis (tls-port), or remove TLSConfig from the Redis client (redis:// instead of rediss://)",
		blocksAll: true,
		Permanent: true,
	}
	faultTLSPort = &Fault{
		Class:     "tls",
		Cause:     "the port expects TLS, and the Redis client does not speak it",
		Change:    "set TLSConfig of the Redis client (rediss:// instead of redis://), or use the plain port",
		blocksAll: true,
		Permanent: true,
	}
	faultPermission = &Fault{
		Class:     "permission",
		Cause:     "the Redis user lacks a permission",
		Change:    "grant what docs/guides/operations.md lists under Access; reqlock doctor, or Client.Ping, says what is missing",
		Permanent: true,
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
	faultTooFewAcks = &Fault{
		Class:  "too_few_acks",
		Cause:  "too few replicas confirm the locks",
		Change: "check the replicas (INFO replication), or lower core.Options.ReplicaAcks",
	}
	faultNoCommand = &Fault{
		Class:     "no_command",
		Cause:     "Redis lacks a command",
		Change:    "use Redis 6.2 or newer, Valkey or KeyDB, without a proxy that blocks commands; reqlock doctor, or Client.Ping, says what is missing",
		Permanent: true,
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
		Change: "see the error, and run reqlock doctor",
	}
)

// ChangeAfter says what to change after an error of this fault. It names the permission if Redis names
// the command.
func (f *Fault) ChangeAfter(err error) string {
	if f == faultPermission {
		if rule := redisacl.CommandRule(err); rule != "" {
			return redisacl.User("<user>").Grant(rule) + "; docs/guides/operations.md lists what locks need under Access"
		}
	}
	return f.Change
}

// Named reports whether the fault is more specific than that Redis refused a command.
func (f *Fault) Named() bool { return f != faultOther }
