package wasm

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	echolock "github.com/reqlock/reqlock/middleware/echo"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// frameworks mount a handler at POST /orders/{id} behind a plugin.
var frameworks = map[string]func(locks *core.Client, cfg guard.Config, h http.HandlerFunc) http.Handler{
	"net/http": func(locks *core.Client, cfg guard.Config, h http.HandlerFunc) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{id}", httplock.New(locks, cfg)(h))
		return mux
	},
	"Gin": func(locks *core.Client, cfg guard.Config, h http.HandlerFunc) http.Handler {
		gin.SetMode(gin.TestMode)
		router := gin.New()
		router.POST("/orders/:id", ginlock.New(locks, cfg), gin.WrapF(h))
		return router
	},
	"Echo": func(locks *core.Client, cfg guard.Config, h http.HandlerFunc) http.Handler {
		e := echo.New()
		e.POST("/orders/:id", echo.WrapHandler(h), echolock.New(locks, cfg))
		return e
	},
}

// A plugin that asks for tokens gets them from the guard: each request has a larger one.
func TestSetFenced(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	g, err := guard.New(locks, guard.Config{Policy: start(t, "all", Config{}).Policy})
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for range 3 {
		g.Serve(httptest.NewRecorder(), request("F", "/", ""), func(_ http.ResponseWriter, r *http.Request) {
			lease, _ := guard.LeaseFrom(r.Context())
			token, ok := lease.Token()
			if !ok || token <= last {
				t.Errorf("token %d, %v, after %d", token, ok, last)
			}
			last = token
		})
	}
	if last == 0 {
		t.Error("the handler did not run")
	}
}

// A plugin that sets a limit lets as many requests in. One that can never work is the plugin's mistake:
// 500, and one line with what is wrong.
func TestSetLimit(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	var log strings.Builder
	g, err := guard.New(locks, guard.Config{
		Policy: start(t, "all", Config{}).Policy,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(method string, handler http.HandlerFunc) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		g.Serve(w, request(method, "/", ""), handler)
		return w
	}
	runs := 0
	var inside http.HandlerFunc
	inside = func(http.ResponseWriter, *http.Request) {
		runs++
		before := runs
		w := send("L", inside)
		if before == 2 && (w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), guard.ProblemLimit)) {
			t.Errorf("with two inside: %d %s", w.Code, w.Body)
		}
	}
	if w := send("L", inside); w.Code != http.StatusOK || runs != 2 {
		t.Errorf("%d, and %d handlers have run, want 2", w.Code, runs)
	}
	for _, method := range []string{"O", "O", "N"} {
		w := send(method, func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), guard.ProblemMisconfigured) {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "Limit is 1, which is not a lock") {
		t.Errorf("the log is %s", log.String())
	}
}

// In each framework a plugin decides: requests with the same key exclude each other, others do not,
// and the handler gets the body that the guest has read.
func TestFrameworks(t *testing.T) {
	server := redistest.Start(t)
	for name, mount := range frameworks {
		t.Run(name, func(t *testing.T) {
			rdb := server.Client(t)
			locks, err := core.New(rdb, core.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := locks.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			p := start(t, "sdk", Config{})
			entered, leave := make(chan string, 1), make(chan struct{})
			handler := mount(locks, guard.Config{Policy: p.Policy}, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if string(body) == "wait" {
					entered <- string(body)
					<-leave
				}
				_, _ = w.Write(body)
			})
			send := func(tenant, path, body string) *httptest.ResponseRecorder {
				r := httptest.NewRequest("POST", path, strings.NewReader(body))
				r.Header.Set("X-Tenant", tenant)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				return w
			}
			check := func(what string, w *httptest.ResponseRecorder, status int, text string) {
				t.Helper()
				if w.Code != status || !strings.Contains(w.Body.String(), text) {
					t.Errorf("%s: %d %s", what, w.Code, w.Body)
				}
			}

			first := make(chan *httptest.ResponseRecorder, 1)
			go func() { first <- send("acme", "/orders/1", "wait") }()
			<-entered
			check("the same key", send("acme", "/orders/1", "wait"), http.StatusConflict, "urn:reqlock:problem:locked")
			check("another tenant", send("globex", "/orders/1", "at once"), http.StatusOK, "at once")
			check("another route", send("acme", "/orders/2", "at once"), http.StatusOK, "at once")
			check("no tenant", send("", "/orders/1", "body"), http.StatusBadRequest, "urn:reqlock:problem:plugin-denied")
			close(leave)
			check("the first", <-first, http.StatusOK, "wait")
			if left, err := rdb.Keys(t.Context(), "*").Result(); len(left) > 0 || err != nil {
				t.Errorf("left in Redis: %q, %v", left, err)
			}
		})
	}
}
