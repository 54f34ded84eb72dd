package redisop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
)

// The errors of operations, beside those of Redis and of the way there, and Config.Closed.
var (
	// ErrLeft: the caller has left.
	ErrLeft = errors.New("the caller has left")
	// ErrTimeout: there was no reply in time.
	ErrTimeout = errors.New("no reply from Redis within CommandTimeout")
	// ErrAborted: the Redis client did not wait for the reply, for a reason of its own.
	ErrAborted = errors.New("the Redis client gave up")
	// ErrWrongKind is core.ErrWrongKind.
	ErrWrongKind = errors.New("reqlock: the key is not a lock of this kind")
	// ErrNotReplicated is core.ErrNotReplicated.
	ErrNotReplicated = errors.New("reqlock: not confirmed by enough replicas")
)

// An end is how a try ended, as far as its error tells.
type end int

const (
	answered end = iota
	busy         // not executed, and worth another try
	away         // not executed: Redis was not reached, or not as a master
	refused      // not executed, and will not be
	failed       // answered with an error: something may have been written
	lost         // not answered: it may have been executed
)

// Redis gives these error replies before a script has written anything.
var (
	tellsBusy = []string{"TRYAGAIN", "LOADING"}
	tellsAway = []string{"READONLY", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "BUSY", "NOSCRIPT"}
)

func endOf(err error) end {
	if err == nil {
		return answered
	}
	switch {
	case HasCode(err, tellsBusy...):
		return busy
	case HasCode(err, tellsAway...), IsDial(err), errors.Is(err, batch.ErrUnsent), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return away
	case isWrongType(err), errors.Is(err, batch.ErrClosed), errors.Is(err, redis.ErrClosed):
		return refused
	case IsAnswer(err):
		return failed
	default:
		return lost
	}
}

// IsDial reports whether there was no connection to send anything on.
func IsDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// IsAnswer reports whether an error is a reply of Redis.
func IsAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// HasCode reports whether an error is a reply of Redis that begins with one of the codes.
func HasCode(err error, codes ...string) bool {
	for _, code := range codes {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

// isWrongType reports whether a key is of another type, or a lock of another kind. The scripts look at that before they write.
// miniredis has text of its own before a code of Redis.
func isWrongType(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (strings.Contains(answer.Error(), "WRONGTYPE ") || strings.HasPrefix(answer.Error(), "WRONGKIND "))
}

// Opaque makes an error of the way to Redis one of ours: a time-out of ours must not look like the end of the caller's context, and
// a key of another type has an error of its own.
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
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %v", ErrAborted, err)
	}
	return err
}
