package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrNotFound is returned by Show if Redis has nothing about a name.
var ErrNotFound = errors.New("reqlock: no such lock")

// Show returns one lock, with up to about 1000 holders and 1000 places of its queue. The name is as
// in Redis, so after a NameMapper. A lock that is not held is returned as well if it has left
// anything in Redis: a queue, a record, a counter of tokens. The error matches ErrNotFound if there
// is nothing, and says so if the name belongs to something else.
func Show(ctx context.Context, rdb redis.UniversalClient, name string) (*Lock, error) {
	r := reader{rdb: rdb, most: shown, strict: true}
	node, err := nodeOf(ctx, rdb, name)
	if err != nil {
		return nil, failed("show a lock", err)
	}
	locks, err := r.read(ctx, node, []string{name})
	if err != nil {
		return nil, failed("show a lock", err)
	}
	if locks[0] == nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	one := []Lock{*locks[0]}
	if err := countListeners(ctx, rdb, one); err != nil {
		return nil, failed("show a lock", err)
	}
	return &one[0], nil
}

// nodeOf returns the server of a key.
func nodeOf(ctx context.Context, rdb redis.UniversalClient, key string) (redis.Cmdable, error) {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return rdb, nil
}

// failed wraps an error of Redis. Errors of this module say already where they come from.
func failed(what string, err error) error {
	if strings.HasPrefix(err.Error(), "reqlock: ") {
		return err
	}
	return fmt.Errorf("reqlock: %s: %w", what, err)
}
