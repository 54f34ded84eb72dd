package fiberlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

// newServer serves an app on a real connection until the test ends.
func newServer(t *testing.T, mount func(app *fiber.App)) *locktest.Server {
	t.Helper()
	app := fiber.New()
	mount(app)
	return newAppServer(t, app)
}

func newAppServer(t *testing.T, app *fiber.App) *locktest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := errors.Join(app.Shutdown(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return &locktest.Server{TB: t, Client: client, URL: "http://" + listener.Addr().String()}
}

func answerLock(c fiber.Ctx) error {
	lease, ok := guard.LeaseFrom(c.Context())
	if !ok {
		return c.SendString("no lock")
	}
	return c.SendString(lease.Name())
}

func quiet(key keyfuncs.Func) fiberlock.Config {
	return fiberlock.Config{Key: key, Logger: slog.New(slog.DiscardHandler)}
}

func TestNew(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.MustHold(t, locks, "reqlock:held")
	s := newServer(t, func(app *fiber.App) {
		app.Get("/orders/:id", fiberlock.New(locks, quiet(keyfuncs.PathValue("id"))), answerLock)
		app.Get("/files/*", fiberlock.New(locks, quiet(keyfuncs.PathValue("*"))), answerLock)
		app.Post("/json", fiberlock.New(locks, quiet(keyfuncs.JSON("/id"))), func(c fiber.Ctx) error {
			return c.SendString(string(c.Body()))
		})
		app.Use("/used", fiberlock.New(locks, quiet(keyfuncs.PathValue("id"))))
		app.Get("/used/:id", answerLock)
	})
	for range 3 { // Fiber uses its buffers again
		s.Want("GET", "/orders/42", 200, "reqlock:42")
		s.Want("GET", "/orders/%34%32", 200, "reqlock:42")
		s.Want("GET", "/orders/held", 409, "urn:reqlock:problem:locked")
		s.Want("GET", "/orders/hel%64", 409, "urn:reqlock:problem:locked")
		s.Want("GET", "/files/a/b", 200, "reqlock:a/b")
		s.Want("GET", "/used/1", 500, "misconfigured")
		s.Want("GET", "/elsewhere", 404, "")
	}
	for body, want := range map[string]int{`{"id": "7"}`: 200, `{"id": "held"}`: 409, `{}`: 400} {
		r := s.NewRequest("POST", "/json", body)
		r.Header.Set("Content-Type", "application/json")
		if a := s.Do(r); a.Status != want || want == 200 && a.Body != body {
			t.Errorf("%s: %v, want %d", body, a, want)
		}
	}
	refusal := s.Do(s.NewRequest("GET", "/orders/held", ""))
	if refusal.Header.Get("Content-Type") != "application/problem+json" || refusal.Header.Get("Retry-After") != "1" || strings.Contains(refusal.Body, "held") {
		t.Errorf("the refusal is %v", refusal)
	}
}

// MaxWaiters bounds the requests that wait.
func TestNew_QueueFull(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	lease, err := locks.Lock("reqlock:k").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := quiet(keyfuncs.Const("k"))
	cfg.WaitTime, cfg.MaxWaiters = 15*time.Second, 1
	s := newServer(t, func(app *fiber.App) { app.Get("/", fiberlock.New(locks, cfg), answerLock) })
	first := make(chan locktest.Answer, 1)
	go func() { first <- s.Do(s.NewRequest("GET", "/", "")) }()
	for locks.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	s.Want("GET", "/", 503, "queue-full")
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if a := <-first; a.Status != 200 || a.Body != "reqlock:k" {
		t.Errorf("the request that waited is answered %v", a)
	}
}

// One request at a time has the lock, and the next one gets it when the handler returns, fails or
// panics.
func TestNew_Excludes(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	cfg := quiet(keyfuncs.Const("k"))
	cfg.WaitTime = 15 * time.Second
	var inside, runs atomic.Int64
	s := newServer(t, func(app *fiber.App) {
		app.Use(func(c fiber.Ctx) (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fiber.NewError(500, fmt.Sprint(r))
				}
			}()
			return c.Next()
		})
		app.Get("/:how", fiberlock.New(locks, cfg), func(c fiber.Ctx) error {
			if inside.Add(1) != 1 {
				t.Error("two handlers are inside")
			}
			runs.Add(1)
			time.Sleep(time.Millisecond) // others come
			inside.Add(-1)
			switch c.Params("how") {
			case "fails":
				return fiber.ErrTeapot
			case "panics":
				panic("of the handler")
			}
			return nil
		})
	})
	done := make(chan struct{})
	for i := range 30 {
		go func() {
			defer func() { done <- struct{}{} }()
			how := []string{"returns", "fails", "panics"}[i%3]
			s.Want("GET", "/"+how, map[string]int{"returns": 200, "fails": 418, "panics": 500}[how], "")
		}()
	}
	for range 30 {
		<-done
	}
	if runs.Load() != 30 {
		t.Errorf("the handlers ran %d times", runs.Load())
	}
}

// The handler's context carries the lease, and c itself leads to it: both re-enter.
func TestNew_Context(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	outcomes := make(chan guard.Outcome, 1)
	cfg := quiet(keyfuncs.Const("k"))
	cfg.Observe = func(_ *http.Request, o guard.Outcome) { outcomes <- o }
	s := newServer(t, func(app *fiber.App) {
		app.Get("/", func(c fiber.Ctx) error {
			before := c.Context()
			err := c.Next()
			if c.Context() != before {
				t.Error("the context is not restored")
			}
			return err
		}, fiberlock.New(locks, cfg), func(c fiber.Ctx) error {
			for _, ctx := range []context.Context{c, c.Context()} {
				lease, err := locks.Lock("reqlock:k").Acquire(ctx, core.AcquireOptions{})
				if err != nil {
					t.Error(err)
					continue
				}
				if err := lease.Release(context.Background()); err != nil {
					t.Error(err)
				}
			}
			return c.Status(201).SendString("done")
		})
	})
	s.Want("GET", "/", 201, "done")
	if o := <-outcomes; !o.Ran || o.Status != 201 {
		t.Errorf("the outcome is %+v", o)
	}
}

func TestIdempotent(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	var runs atomic.Int64
	s := newServer(t, func(app *fiber.App) {
		once := fiberlock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal, Logger: slog.New(slog.DiscardHandler)})
		app.Use(func(c fiber.Ctx) error {
			c.Set("X-Outer", fmt.Sprint(runs.Load()))
			return c.Next()
		})
		app.Post("/pay/:how", once, func(c fiber.Ctx) error {
			n := runs.Add(1)
			c.Set("X-Own", fmt.Sprint(n))
			switch c.Params("how") {
			case "fails":
				return fiber.NewError(404, "no such order")
			case "streams":
				return c.SendStream(strings.NewReader("a stream"))
			case "empty":
				return c.SendStatus(204)
			}
			return c.Status(201).JSON(fiber.Map{"payment": n})
		})
	})
	for how, want := range map[string]struct {
		status   int
		body     string
		again    int
		replayed bool
	}{
		"json":    {201, `{"payment":`, 201, true},
		"fails":   {404, "no such order", 404, true},
		"empty":   {204, "", 204, true},
		"streams": {200, "a stream", 409, false},
	} {
		first, again := s.PostWithKey("/pay/"+how, how), s.PostWithKey("/pay/"+how, how)
		if first.Status != want.status || !strings.Contains(first.Body, want.body) || first.Replayed() {
			t.Errorf("%s: %v", how, first)
		}
		if again.Status != want.again || again.Replayed() != want.replayed {
			t.Errorf("%s again: %v", how, again)
		}
		if want.replayed && (again.Body != first.Body || again.Header.Get("X-Own") != first.Header.Get("X-Own") ||
			again.Header.Get("Content-Type") != first.Header.Get("Content-Type") || len(again.Header["X-Outer"]) != 1) {
			t.Errorf("%s: %v, then %v", how, first, again)
		}
	}
	if runs.Load() != 4 {
		t.Errorf("the handler ran %d times, want 4", runs.Load())
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	values := map[string]any{"string": "anna", "int": 7, "empty": "", "list": []string{"anna"}}
	s := newServer(t, func(app *fiber.App) {
		app.Get("/:kind", func(c fiber.Ctx) error {
			c.Locals("internal-user", values[c.Params("kind")])
			return c.Next()
		}, fiberlock.New(locktest.NewLocks(t), quiet(fiberlock.Value("internal-user"))), answerLock)
	})
	s.Want("GET", "/string", 200, "reqlock:anna")
	s.Want("GET", "/int", 200, "reqlock:7")
	for kind, problem := range map[string]string{"none": "key-missing", "empty": "key-missing", "list": "key-invalid"} {
		s.Want("GET", "/"+kind, 400, problem)
		s.WantNot("GET", "/"+kind, "internal-user", "Ctx", "[]string")
	}
}
