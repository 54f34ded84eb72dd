package inspect

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A client that does not fit the server gets an error, and no part of the locks.
func TestList_WrongClient(t *testing.T) {
	t.Parallel()
	cluster, srv := redistest.StartCluster(t), redistest.Start(t)
	none := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	defer none.Close()
	for name, test := range map[string]struct {
		rdb  redis.UniversalClient
		says string
		is   error
	}{
		"of one node":     {cluster.Servers[1].Client(t), "use redis.NewClusterClient", core.ErrMisconfigured},
		"of a cluster":    {none, "use redis.NewClient", core.ErrMisconfigured},
		"embeds a client": {struct{ *redis.ClusterClient }{cluster.Client(t)}, "Unwrap() redis.UniversalClient", nil},
		"nil":             {(*redis.Client)(nil), "a nil *redis.Client", nil},
	} {
		_, _, list := List(t.Context(), test.rdb, ListOptions{})
		_, show := Show(t.Context(), test.rdb, "a")
		for what, err := range map[string]error{"List": list, "Show": show} {
			if err == nil || !strings.HasPrefix(err.Error(), "reqlock: ") || !strings.Contains(err.Error(), test.says) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%s, a client %s: %v", what, name, err)
			}
		}
	}
}
