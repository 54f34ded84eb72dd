package redisop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// The errors of operations, besides Config.Closed and the errors of Redis and of the connection to
// it.
var (
	// ErrLeft: the caller left before the reply.
	ErrLeft = errors.New("the caller has left")
	// ErrTimeout: the operation's time was over before the reply.
	ErrTimeout = errors.New("no reply from Redis within CommandTimeout")
	// ErrAborted: the Redis client stopped waiting for the reply by its own decision.
	ErrAborted = errors.New("the Redis client gave up")
	// ErrWrongKind is core.ErrWrongKind.
	ErrWrongKind = errors.New("reqlock: the key is not a lock of this kind")
	// ErrNotReplicated is core.ErrNotReplicated.
	ErrNotReplicated = errors.New("reqlock: not confirmed by enough replicas")
	// ErrMisconfigured is core.ErrMisconfigured.
	ErrMisconfigured = errors.New("reqlock: Redis or its client is misconfigured")
)

// An end is how a try ended, according to its error.
type end int

const (
	answered end = iota
	busy         // not executed: Redis asks for a retry
	away         // not executed: Redis was not reached, or cannot serve the call now
	refused      // not executed, and a retry would not be either
	failed       // answered with an error: something may have been written
	lost         // not answered: the script may have been executed, or may be yet
)

// Redis returns these error replies before a script has written anything.
var (
	busyCodes = []string{"TRYAGAIN", "LOADING"}
	awayCodes = []string{"READONLY", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "BUSY", "NOSCRIPT"}
)

func endOf(err error) end {
	if err == nil {
		return answered
	}
	var wrong *redisclient.WrongError
	switch {
	case errors.As(err, &wrong):
		return refused
	case HasCode(err, busyCodes...):
		return busy
	case HasCode(err, awayCodes...), IsDial(err), errors.Is(err, batch.ErrUnsent),
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return away
	case isWrongType(err), errors.Is(err, batch.ErrClosed), errors.Is(err, redis.ErrClosed):
		return refused
	case IsAnswer(err):
		return failed
	default:
		return lost
	}
}

// IsDial reports whether err is a failure to connect, so that nothing was sent.
func IsDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// IsAnswer reports whether err is an error reply of Redis.
func IsAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// HasCode reports whether err is an error reply of Redis that begins with one of the codes.
func HasCode(err error, codes ...string) bool {
	for _, code := range codes {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

// isWrongType reports whether err means that a key has another type, or is a lock of another kind.
// The scripts check that before they write. miniredis puts its own text before the code of Redis.
func isWrongType(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) &&
		(strings.Contains(answer.Error(), "WRONGTYPE ") || strings.HasPrefix(answer.Error(), "WRONGKIND "))
}

func isPermanent(err error) bool {
	f := FaultOf(err)
	return f != nil && f.Permanent
}

// Opaque translates the errors of the layers below. A timeout of an operation must not look like
// the end of the caller's context, so context errors become ErrTimeout or ErrAborted.
func (r *Runner) Opaque(err error) error {
	switch {
	case err == nil:
		return nil
	case err == batch.ErrClosed:
		return r.cfg.Closed
	case err == batch.ErrUnanswered:
		return ErrTimeout
	case isWrongType(err):
		return ErrWrongKind
	case isPermanent(err):
		return Explain(err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %v", ErrAborted, err)
	}
	return err
}
