package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// ErrNotFound is returned by Show if Redis has nothing about a name.
var ErrNotFound = errors.New("reqlock: no such lock")

// Show returns one lock or semaphore, with up to about 1000 holders and 1000 places of its queue. The
// name is as in Redis, so after a NameMapper. A lock that is not held is returned as well if it has
// left anything in Redis: a queue, a record, a counter of tokens, a number of permits. The error
// matches ErrNotFound if there is nothing, and says so if the name belongs to something else. A
// semaphore of Redisson that no one uses is a number in Redis like any other, so it is not found.
func Show(ctx context.Context, rdb redis.UniversalClient, name string) (*Lock, error) {
	conn, err := connection(ctx, rdb)
	if err != nil {
		return nil, failed("show a lock", err)
	}
	r := reader{rdb: conn, most: shown, strict: true}
	node, err := conn.MasterForKey(ctx, name)
	if err != nil {
		return nil, failed("show a lock", err)
	}
	found, err := r.find(ctx, node, name)
	if err != nil {
		return nil, failed("show a lock", err)
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	one := []Lock{*found}
	if err := countListeners(ctx, conn, one); err != nil {
		return nil, failed("show a lock", err)
	}
	if err := markStalled(ctx, conn, one); err != nil {
		return nil, failed("show a lock", err)
	}
	return &one[0], nil
}

// find returns the lock of a name, or its semaphore if no one holds a lock.
func (r *reader) find(ctx context.Context, node redis.Cmdable, name string) (*Lock, error) {
	var lock *Lock
	locks, err := r.read(ctx, node, []string{name})
	if err == nil {
		lock = locks[0]
	}
	if err != nil && !errors.Is(err, ErrNotFound) || lock != nil && lock.Held() {
		return lock, err
	}
	semaphores, failure := r.readSemaphores(ctx, node, []string{name})
	switch {
	case failure != nil:
		return nil, failure
	case semaphores[0] != nil && (lock == nil || semaphores[0].Held()):
		return semaphores[0], nil
	}
	return lock, err
}

// connection returns the client in rdb, if it fits the server.
func connection(ctx context.Context, rdb redis.UniversalClient) (redisclient.Client, error) {
	c, err := redisclient.Of(rdb)
	if err == nil {
		err = c.CheckServer(ctx)
	}
	return c, err
}

// failed wraps an error of Redis. Errors of this module say already where they come from.
func failed(what string, err error) error {
	var wrong *redisclient.WrongError
	if errors.As(err, &wrong) {
		return &misfitError{what, wrong}
	}
	if strings.HasPrefix(err.Error(), "reqlock: ") {
		return err
	}
	return fmt.Errorf("reqlock: %s: %w", what, err)
}

// A misfitError reports a client that does not fit the server.
type misfitError struct {
	what  string
	wrong *redisclient.WrongError
}

func (e *misfitError) Error() string        { return "reqlock: " + e.what + ": " + e.wrong.Explain() }
func (e *misfitError) Unwrap() error        { return e.wrong }
func (e *misfitError) Is(target error) bool { return target == core.ErrMisconfigured }
