package guard_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// A Redis client that does not fit the server is a mistake of the program: 500 with the remedy in
// the log, and no handler runs, with FailOpen either.
func TestMisfit_NeverFailsOpen(t *testing.T) {
	t.Parallel()
	srv, cluster := redistest.Start(t), redistest.StartCluster(t)
	for name, test := range map[string]struct {
		rdb    redis.UniversalClient
		remedy string
	}{
		"a cluster client for a server":  {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}}), "use redis.NewClient"},
		"a client for a node of several": {redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{cluster.Servers[0].Addr()}}), "use redis.NewClusterClient"},
	} {
		defer test.rdb.Close()
		locks, err := core.New(test.rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(t.Context())
		var log bytes.Buffer
		var outcome guard.Outcome
		handler := httplock.New(locks, httplock.Config{
			Key:      keyfuncs.Path(),
			FailOpen: true,
			Logger:   slog.New(slog.NewTextHandler(&log, nil)),
			Observe:  func(_ *http.Request, o guard.Outcome) { outcome = o },
		})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the handler runs", name) }))
		for _, order := range []string{"1", "2", "3", "4", "5", "6"} { // keys of several nodes
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/"+order, nil))
			if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), guard.ProblemMisconfigured) || outcome.FailedOpen || outcome.Ran {
				t.Errorf("%s, order %s: %d %s, %+v", name, order, w.Code, w.Body, outcome)
			}
			if !strings.Contains(log.String(), `change="`+test.remedy) {
				t.Errorf("%s, order %s: the log is %s", name, order, log.String())
			}
		}
	}
}
