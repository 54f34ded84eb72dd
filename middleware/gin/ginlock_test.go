package ginlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	goleak.VerifyTestMain(redistest.Settled(m))
}

// A ginServer serves an engine.
type ginServer struct {
	*locktest.Server
	engine *gin.Engine
}

// newServer serves an engine; its routes may be added until the first request.
func newServer(t *testing.T) *ginServer {
	t.Helper()
	engine := gin.New()
	return &ginServer{locktest.NewServer(t, engine), engine}
}

// answerLock answers with the name of the lock that is held, and the pattern.
func answerLock(c *gin.Context) {
	name := "no lock"
	if lease, ok := guard.LeaseFrom(c); ok {
		name = lease.Name()
	}
	c.String(http.StatusOK, "%s, %s", name, c.Request.Pattern)
}

func TestNew_Mounted(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	lock := New(locks, Config{Key: keyfuncs.PathValue("id")})
	for name, mount := range map[string]func(*gin.Engine){
		"engine": func(e *gin.Engine) { e.Use(lock); e.GET("/api/orders/:id", answerLock) },
		"group":  func(e *gin.Engine) { e.Group("/api", lock).GET("/orders/:id", answerLock) },
		"route":  func(e *gin.Engine) { e.GET("/api/orders/:id", lock, answerLock) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			mount(s.engine)
			s.Want("GET", "/api/orders/"+name, 200, "reqlock:"+name+", /api/orders/:id")
		})
	}
}

// Gin runs an engine's middleware for requests that no route matches as well.
func TestNew_Unmatched(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:one for all")
	s := newServer(t)
	s.engine.HandleMethodNotAllowed = true
	s.engine.RedirectFixedPath = true
	s.engine.Use(New(locks, Config{Key: keyfuncs.Const("one for all")}))
	s.engine.GET("/orders/:id", answerLock)
	s.engine.GET("/slash/", answerLock)
	s.engine.NoRoute(func(c *gin.Context) { c.String(http.StatusNotFound, "nothing here") })
	s.Want("GET", "/orders/1", 409, "urn:reqlock:problem:locked")
	s.Want("GET", "/elsewhere", 404, "nothing here")
	s.Want("POST", "/orders/1", 405, "")
	s.Want("GET", "/orders/1/", 301, "")
	s.Want("GET", "/slash", 301, "")
	s.Want("GET", "/SLASH/", 301, "")
}

// The pattern is that of the innermost router, wherever the engine is mounted.
func TestNew_EngineInServeMux(t *testing.T) {
	t.Parallel()
	engine := gin.New()
	engine.GET("/orders/:id", New(locktest.NewLocks(t), Config{Key: keyfuncs.Pattern()}), answerLock)
	mux := http.NewServeMux()
	mux.Handle("/", engine)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/orders/1", nil))
	if got, want := w.Body.String(), "reqlock:/orders/:id, /orders/:id"; got != want {
		t.Errorf("the handler sees %q, want %q", got, want)
	}
}

func TestNew_RefusalAborts(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:1")
	s := newServer(t)
	aborted := make(chan bool, 1)
	s.engine.Use(func(c *gin.Context) { c.Next(); aborted <- c.IsAborted() })
	unreachable := func(*gin.Context) { t.Error("a handler runs after a refusal") }
	s.engine.GET("/orders/:id", New(locks, Config{Key: keyfuncs.PathValue("id")}), unreachable, unreachable)
	s.Want("GET", "/orders/1", 409, "locked")
	if !<-aborted {
		t.Error("middleware further out does not see that the chain was aborted")
	}
}

func TestNew_RestoresRequest(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	type marker struct{}
	seen := make(chan string, 1)
	s.engine.Use(func(c *gin.Context) {
		before := c.Request.WithContext(context.WithValue(c.Request.Context(), marker{}, "outer"))
		c.Request = before
		c.Set("mine", 1)
		c.Next()
		_, held := guard.LeaseFrom(c)
		seen <- fmt.Sprint(c.Request == before, c.Request.Context() == before.Context(), held, len(c.Keys))
	}, gin.RecoveryWithWriter(io.Discard), New(locktest.NewLocks(t), Config{Key: keyfuncs.Const("k")}))
	s.engine.GET("/:how", func(c *gin.Context) {
		if got := c.Request.Context().Value(marker{}); got != "outer" {
			t.Errorf("the handler's context has the value %v, want that of outer middleware", got)
		}
		if c.Param("how") == "panic" {
			panic("the handler fails")
		}
	})
	for path, status := range map[string]int{"/return": 200, "/panic": 500} {
		s.Want("GET", path, status, "")
		if got, want := <-seen, "true true false 1"; got != want {
			t.Errorf("after %s: request and context are the same, a lock is left, number of keys: %s; want %s", path, got, want)
		}
	}
}

// A handler may pass *gin.Context as its context, as Gin's users do.
func TestGinContext_Reenters(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	s := newServer(t)
	lock := New(locks, Config{Key: keyfuncs.PathValue("id")})
	s.engine.GET("/orders/:id", lock, lock, func(c *gin.Context) {
		timed, cancel := context.WithTimeout(c, time.Minute)
		defer cancel()
		for name, ctx := range map[string]context.Context{"c": c, "WithTimeout(c)": timed, "c.Request.Context()": c.Request.Context(), "c.Copy()": c.Copy()} {
			if outer, ok := guard.LeaseFrom(ctx); !ok || outer.Name() != "reqlock:1" {
				t.Errorf("%s: LeaseFrom = %v, %v", name, outer, ok)
			}
			lease, err := locks.Lock("reqlock:1").Acquire(ctx, core.AcquireOptions{})
			if err != nil {
				t.Errorf("%s does not re-enter: %v", name, err)
				continue
			}
			if err := lease.Release(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := locks.Lock("reqlock:1").Acquire(context.Background(), core.AcquireOptions{}); err == nil {
			t.Error("a context without an owner gets the lock")
		}
		answerLock(c)
	})
	s.Want("GET", "/orders/1", 200, "reqlock:1")
}

// *gin.Context never ends, but a handler that waits for a lock with it waits no longer than its
// client, with a guard and without.
func TestGinContext_Ends(t *testing.T) {
	t.Parallel()
	waits, ended := make(chan struct{}), make(chan error)
	locks := locktest.NewLocks(t, func(opts *core.Options) {
		opts.Observer = core.Observer{Waiting: func(context.Context, core.Event) { waits <- struct{}{} }}
	})
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil { // or else a channel lingers
			t.Error(err)
		}
	})
	locktest.MustHold(t, locks, "wanted")
	s := newServer(t)
	wait := func(c *gin.Context) {
		_, err := locks.Lock("wanted").Acquire(c, core.AcquireOptions{WaitTime: -1})
		ended <- err
	}
	s.engine.GET("/guarded", New(locks, Config{Key: keyfuncs.Const("k")}), wait)
	s.engine.GET("/free", wait)
	for _, path := range []string{"/guarded", "/free"} {
		ctx, hangUp := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			response, err := s.Client.Do(r)
			if err == nil {
				response.Body.Close()
			}
			answered <- err
		}()
		select {
		case <-waits:
		case err := <-answered:
			t.Fatalf("%s: answered before the handler waits: %v", path, err)
		}
		hangUp()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Acquire fails with %v, want context.Canceled", path, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the handler still waits", path)
		}
		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the client gets %v", path, err)
		}
	}
}

// A handler between two guards has the lock of the outer one, before and after the inner one.
func TestNew_Nested(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	s := newServer(t)
	wantLock := func(c *gin.Context, name string) {
		if lease, ok := guard.LeaseFrom(c); !ok || lease.Name() != name {
			t.Errorf("the lease is %v, %v; want that of %s", lease, ok, name)
		}
	}
	s.engine.GET("/orders/:id", New(locks, Config{Key: keyfuncs.Const("outer")}), func(c *gin.Context) {
		wantLock(c, "reqlock:outer")
		c.Next()
		wantLock(c, "reqlock:outer")
	}, New(locks, Config{Key: keyfuncs.PathValue("id")}), answerLock)
	s.Want("GET", "/orders/1", 200, "reqlock:1")
}

// The catch-all of other frameworks has no leading slash.
func TestNew_CatchAllWithoutSlash(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.engine.GET("/files/*rest", New(locktest.NewLocks(t), Config{Key: keyfuncs.PathValue("rest")}), answerLock)
	s.Want("GET", "/files/x/y", 200, "reqlock:x/y")
	s.engine.GET("/u/:id/*all", New(locktest.NewLocks(t), Config{Key: keyfuncs.Join(keyfuncs.PathValue("id"), keyfuncs.PathValue("all"))}), answerLock)
	s.Want("GET", "/u/1/%61", 200, "reqlock:1:a")
}

func TestNew_HandleContext(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	locks := locktest.NewLocks(t)
	s.engine.Use(New(locks, Config{Keys: []keyfuncs.Func{keyfuncs.Const("same for both"), keyfuncs.Pattern()}, Name: guard.Exact}))
	s.engine.GET("/old/:id", func(c *gin.Context) {
		request := c.Request
		c.Request.URL.Path = "/new/" + c.Param("id")
		s.engine.HandleContext(c)
		if c.Request != request {
			t.Error("the request is not restored")
		}
		if _, ok := guard.LeaseFrom(c.Request.Context()); !ok {
			t.Error("the outer guard has no lease any more")
		}
		for _, ctx := range []context.Context{c.Request.Context(), c} {
			lease, err := locks.Lock("same for both").Acquire(ctx, core.AcquireOptions{})
			if err != nil {
				t.Errorf("%T: %v", ctx, err)
				continue
			}
			if err := lease.Release(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	s.engine.GET("/new/:id", answerLock)
	s.Want("GET", "/old/1", 200, "multi(/new/:id, same for both), /new/:id")
}

// A goroutine that keeps a copy beyond the request sees that the request has ended, and has no
// lease.
func TestGinContext_CopyOutlivesRequest(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	s := newServer(t)
	answered, seen := make(chan struct{}), make(chan string)
	s.engine.GET("/:id", New(locks, Config{Key: keyfuncs.PathValue("id")}), func(c *gin.Context) {
		kept := c.Copy()
		go func() {
			<-answered
			_, held := guard.LeaseFrom(kept)
			seen <- fmt.Sprint(held, " ", kept.Request.Context().Err(), " ", kept.Param("id"), kept.Request.PathValue("id"))
		}()
	})
	for range 20 { // with contexts from the pool
		s.Want("GET", "/1", 200, "")
		answered <- struct{}{}
		if got, want := <-seen, "false context canceled 11"; got != want {
			t.Errorf("the copy has %q, want %q", got, want)
		}
	}
}

// Gin sends an answer without a body after all middleware, when the lock is released.
func TestNew_StatusWithoutBody(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	lock := New(locktest.NewLocks(t), Config{Key: keyfuncs.Const("k")})
	s.engine.DELETE("/status", lock, func(c *gin.Context) { c.Status(http.StatusNoContent) })
	s.engine.DELETE("/abort", lock, func(c *gin.Context) { c.AbortWithStatus(http.StatusTeapot) })
	for range 3 {
		s.Want("DELETE", "/status", 204, "")
		s.Want("DELETE", "/abort", 418, "")
	}
}

func TestNew_PooledContextsKeepNothing(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	s := newServer(t)
	s.engine.GET("/locked/:id", New(locks, Config{Key: keyfuncs.PathValue("id")}), answerLock)
	s.engine.GET("/free/:id", func(c *gin.Context) {
		_, held := guard.LeaseFrom(c)
		c.String(http.StatusOK, "%t %d %q", held, len(c.Keys), c.Request.PathValue("id"))
	})
	for range 50 {
		s.Want("GET", "/locked/1", 200, "reqlock:1")
		s.Want("GET", "/free/1", 200, `false 0 ""`)
	}
}

func TestNew_OutcomeStatus(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	outcomes := make(chan guard.Outcome, 1)
	lock := New(locktest.NewLocks(t), Config{Key: keyfuncs.PathValue("how"), Observe: func(_ *http.Request, o guard.Outcome) { outcomes <- o }})
	s.engine.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.Status(500) }), func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.String(418, "an error")
		}
	})
	s.engine.GET("/:how", lock, func(c *gin.Context) {
		switch c.Param("how") {
		case "answers":
			c.String(201, "made")
		case "sets":
			c.Status(204)
		case "does-nothing":
		case "leaves-an-error":
			_ = c.Error(errors.New("left for middleware"))
		case "answers-an-error":
			_ = c.Error(errors.New("for the log"))
			c.String(409, "conflict")
		case "panics":
			panic("of the handler")
		}
	})
	for how, status := range map[string]struct{ sent, observed int }{
		"answers": {201, 201}, "sets": {204, 204}, "does-nothing": {200, 200},
		"leaves-an-error": {418, 0}, "answers-an-error": {409, 409}, "panics": {500, 0},
	} {
		s.Want("GET", "/"+how, status.sent, "")
		if o := <-outcomes; !o.Ran || o.Status != status.observed {
			t.Errorf("%s: observed %+v, want Ran and Status %d", how, o, status.observed)
		}
	}
}
