package guard_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A fault that every request meets is one line a minute.
func TestLog_OneLineForManyRequests(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := core.New(rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(t.Context()) })
	for name, test := range map[string]struct {
		key  keyfuncs.Func
		text string
	}{
		"Redis is down":            {keyfuncs.Const("a"), "runs without a lock"},
		"a key function fails":     {func(*http.Request) (string, error) { return "", errors.New("broken") }, "a key function failed"},
		"a guard is misconfigured": {func(*http.Request) (string, error) { return "", keyfuncs.ErrNoRoute }, "guard is misconfigured"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			g, err := guard.New(locks, guard.Config{Key: test.key, FailOpen: true, Logger: slog.New(slog.NewTextHandler(&out, nil))})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				r := httptest.NewRequest(http.MethodPost, fmt.Sprint("/orders/", i), nil)
				g.Serve(httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) {})
			}
			if n := strings.Count(out.String(), test.text); n != 1 || !strings.Contains(out.String(), "requests=1") {
				t.Errorf("%d lines, want 1:\n%s", n, out.String())
			}
		})
	}
}
