package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/internal/redisacl"
)

// Exit codes.
const (
	done        = 0
	notHeld     = 1 // The lock is not held, or was not found.
	usage       = 2
	redisFailed = 3
	interrupted = 130 // Shells use this number.

	// Those of run, beside that of its command. They are numbers of sysexits.h and of shells.
	unavailable   = 69
	notAcquired   = 75
	lockLost      = 76
	notExecutable = 126
	noCommand     = 127
)

// An exitError ends the program with a code of its own, and says nothing if it has no text. Other
// errors are those of Redis.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func usageError(format string, args ...any) error {
	return &exitError{usage, fmt.Sprintf(format, args...)}
}

func notHeldError(format string, args ...any) error {
	return &exitError{notHeld, fmt.Sprintf(format, args...)}
}

// exitCode returns the code for an error of a command.
func exitCode(ctx context.Context, err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return done
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, inspect.ErrNotFound):
		return notHeld
	case ctx.Err() != nil:
		return interrupted
	}
	return redisFailed
}

// explain returns the text of an error, with what to do about it if that is not obvious.
func explain(err error) string {
	text := bare(err)
	switch exit := (*exitError)(nil); {
	case errors.As(err, &exit):
	case redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "CROSSSLOT"):
		text += "; this Redis is a cluster: use redis+cluster:// in place of redis://"
	case redisacl.Denied(err):
		text += "; docs/guides/commands.md lists the permissions that this command needs"
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		text += "; put user and password into the URL: redis://user:password@host:6379"
	case errors.Is(err, context.DeadlineExceeded):
		text = "Redis did not answer in time (" + text + "); raise --timeout, or check Redis"
	}
	return text
}

// bare returns the text of an error without the prefix of this module.
func bare(err error) string { return strings.ReplaceAll(err.Error(), "reqlock: ", "") }
