package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// newClient returns a client that is closed when the test ends.
func newClient(t testing.TB, addr string, change func(*redis.Options)) *redis.Client {
	opts := &redis.Options{Addr: addr}
	if change != nil {
		change(opts)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() }) // the test may have closed it
	return client
}
