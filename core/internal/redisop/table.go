package redisop

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// An end is how a try ended, according to its error.
type end int

const (
	answered end = iota
	busy         // Redis executed nothing and asks for a retry.
	moved        // The connection leads to the wrong server, so nothing was executed and a new one is tried.
	away         // Redis was not reached, or cannot serve the call now. Nothing was executed.
	refused      // Nothing was executed, and a retry would be refused, too.
	failed       // Redis answered with an error, and something may have been written.
	lost         // Redis did not answer. The script may have been executed, or may be yet.
)

// A class is what an error of a try means. Every error has one class; docs/reference/failures.md
// has the same table, with what follows from each.
type class struct {
	end   end
	fault *Fault // nil: not a fault, because locks expect the error
}

// replies lists the error replies of Redis by what they begin with. The last row is all others.
var replies = []struct {
	prefix string
	class
}{
	{"READONLY", class{moved, faultReadOnly}},
	{"LOADING", class{busy, faultLoading}},
	{"TRYAGAIN", class{busy, nil}},
	{"MASTERDOWN", class{away, faultStaleReplica}},
	{"CLUSTERDOWN", class{away, faultClusterDown}},
	{"MOVED", class{away, nil}}, // to a client of one server: see Runner.classify
	{"ASK", class{away, nil}},
	{"BUSY", class{away, faultBusy}},
	{"NOSCRIPT", class{away, nil}},
	{"max number of clients", class{away, faultTooManyClients}},
	{"MISCONF", class{failed, faultCannotSave}},
	{"NOREPLICAS", class{failed, faultTooFewReplicas}},
	{"OOM", class{failed, faultOutOfMemory}},
	{"NOPERM", class{failed, faultPermission}},
	{"The user executing the script", class{failed, faultPermission}},
	{"ACL failure in script", class{failed, faultPermission}},
	{"Unknown Redis command", class{failed, faultNoCommand}},
	{"NOAUTH", class{refused, faultLogin}},
	{"WRONGPASS", class{refused, faultLogin}},
	{"AUTH ", class{refused, faultLogin}},
	{"Client sent AUTH", class{refused, faultLogin}},
	{"invalid password", class{refused, faultLogin}},
	{"DENIED", class{refused, faultProtected}},
	{"unknown command", class{refused, faultNoCommand}},
	{"unknown subcommand", class{refused, faultNoCommand}},
	{"CROSSSLOT", class{failed, nil}},
	{"", class{failed, faultOther}},
}

// classify returns the class of an error.
func classify(err error) class {
	if err == nil { // before own and wrong, which are allocated
		return class{}
	}
	var own *FaultError
	var wrong *redisclient.WrongError
	switch {
	case errors.Is(err, redis.Nil):
		return class{failed, nil}
	case errors.As(err, &own):
		return class{classify(own.Err).end, own.Fault}
	case IsWrongType(err), errors.Is(err, ErrWrongKind), errors.Is(err, ErrNotReplicated), errors.Is(err, batch.ErrClosed):
		return class{refused, nil}
	case errors.As(err, &wrong) && wrong.Cluster:
		return class{refused, faultNoCluster}
	case wrong != nil:
		return class{refused, faultOneNode}
	case errors.Is(err, lua.ErrUnexpected):
		return class{failed, faultOther}
	case errors.Is(err, redis.ErrClosed):
		return class{refused, faultClientClosed}
	case errors.Is(err, batch.ErrStale):
		return class{moved, faultConnection}
	}
	if text, ok := batch.Said(err); ok {
		for _, row := range replies {
			if strings.HasPrefix(text, row.prefix) {
				return row.class
			}
		}
	}
	return classifyTransport(err)
}

// classifyTransport returns the class of an error that is not a reply.
func classifyTransport(err error) class {
	var network net.Error
	isNetwork := errors.As(err, &network)
	timedOut := isNetwork && network.Timeout()
	f := tlsFault(err)
	switch {
	case f != nil:
	case isForeign(err):
		f = faultForeign
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return class{away, faultPoolEmpty}
	case batch.IsConnect(err) && timedOut && !isDial(err):
		f = faultSilent
	case batch.IsConnect(err):
		f = faultUnreachable
	case errors.Is(err, batch.ErrUnsent), errors.Is(err, batch.ErrUnanswered),
		errors.Is(err, ErrTimeout), errors.Is(err, ErrAborted), timedOut:
		f = faultSilent
	case isNetwork, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f = faultUnreachable
	default:
		f = faultConnection
	}
	if batch.IsConnect(err) || errors.Is(err, batch.ErrUnsent) || errors.Is(err, batch.ErrHungUp) {
		return class{away, f}
	}
	return class{lost, f}
}

// isForeign reports whether err is a first reply that go-redis cannot parse. It has no type for
// these. HELLO is the first command of a connection, and its reply is a map.
func isForeign(err error) bool {
	return strings.Contains(err.Error(), "redis: can't parse map reply: ")
}

// isDial reports whether err is a failure to open a connection.
func isDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// tlsFault returns the fault of an error of TLS, or nil if err is none.
func tlsFault(err error) *Fault {
	var (
		name      x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &name):
		return faultTLSName
	case errors.As(err, &authority):
		return faultTLSAuthority
	case errors.As(err, &invalid), errors.As(err, &verify):
		return faultTLSCertificate
	case errors.Is(err, batch.ErrPlainPort), errors.As(err, &record):
		return faultPlainPort
	case errors.Is(err, batch.ErrTLSPort):
		return faultTLSPort
	case errors.As(err, &alert), saysTLSAlert(err):
		return faultTLSRefused
	}
	return nil
}

// saysTLSAlert reports whether err is an alert that the server sent. crypto/tls does not export the
// type of these.
func saysTLSAlert(err error) bool {
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error" && strings.HasPrefix(remote.Err.Error(), "tls: ")
}

func endOf(err error) end { return classify(err).end }

// FaultOf returns the fault that caused the error of an operation, or nil if none did.
func FaultOf(err error) *Fault { return classify(err).fault }

// Heals reports whether the cause of an error may pass without a change to this program or its
// permissions, as an outage, a failover or a full memory does.
func Heals(err error) bool {
	if HasCode(err, "TRYAGAIN", "MOVED", "ASK") {
		return FaultOf(err) == nil
	}
	f := FaultOf(err)
	return f != nil && f.Heals
}

// IsAnswer reports whether err is an error reply of Redis.
func IsAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// HasCode reports whether err is an error reply of Redis that begins with one of the codes.
func HasCode(err error, codes ...string) bool { return batch.HasCode(err, codes...) }

// IsWrongType reports whether err means that a key has another type, or is a lock of another kind.
// The scripts check that before they write. miniredis puts its own text before the code of Redis.
func IsWrongType(err error) bool {
	text, ok := batch.Said(err)
	return ok && (strings.Contains(text, "WRONGTYPE ") || strings.HasPrefix(text, "WRONGKIND "))
}
