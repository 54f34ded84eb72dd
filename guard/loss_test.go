package guard_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// A lost lock is one line of core and one of guard, each with the lock and the route, whether the
// handler still runs or the release finds out, and however many guards hold it.
func TestLoss_IsLoggedOnce(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"while the handler runs": true, "at the release": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client(t)
			var mu sync.Mutex
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return log.Write(p)
			}), nil))
			locks, err := core.New(rdb, core.Options{Logger: logger, WatchdogTimeout: 3 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer locks.Close(context.Background())
			observed := make(chan error, 1)
			mux := http.NewServeMux()
			inner := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id"), Logger: logger})
			mux.Handle("POST /orders/{id}", httplock.New(locks, httplock.Config{
				Key:     keyfuncs.PathValue("id"),
				Logger:  logger,
				Observe: func(_ *http.Request, o guard.Outcome) { observed <- o.Err },
			})(inner(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := rdb.FlushAll(r.Context()).Err(); err != nil {
					t.Error(err)
				}
				if waits {
					<-r.Context().Done()
				}
			}))))
			srv := httptest.NewServer(mux)
			defer srv.Close()
			res, err := srv.Client().Post(srv.URL+"/orders/42", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if err := <-observed; !errors.Is(err, core.ErrLockLost) {
				t.Errorf("the outcome is %v, want ErrLockLost", err)
			}
			if err := locks.Close(context.Background()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, text := range []string{"reqlock: lock lost while it was held", "reqlock: the lock was lost while the handler ran"} {
				var lines []string
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, text) {
						lines = append(lines, line)
					}
				}
				if len(lines) != 1 || !strings.Contains(lines[0], "lock=#") || !strings.Contains(lines[0], `="POST /orders/{id}"`) {
					t.Errorf("%d lines say %q, want one with the lock and the route:\n%s", len(lines), text, log.String())
				}
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
