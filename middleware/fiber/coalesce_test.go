package fiberlock_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

// TestCoalesce_Shares has each of the ways in which Fiber answers. The second request comes while the
// answer to the first is kept.
func TestCoalesce_Shares(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	var runs atomic.Int64
	ways := map[string]struct {
		status int
		body   string
		handle fiber.Handler
		alone  bool
	}{
		"nothing":    {200, "", func(fiber.Ctx) error { return nil }, false},
		"status":     {204, "", func(c fiber.Ctx) error { return c.SendStatus(204) }, false},
		"json":       {201, `{"id":1}`, func(c fiber.Ctx) error { return c.Status(201).JSON(fiber.Map{"id": 1}) }, false},
		"write":      {200, "one two", func(c fiber.Ctx) error { _, _ = c.WriteString("one "); _, err := c.Write([]byte("two")); return err }, false},
		"location":   {201, "done", func(c fiber.Ctx) error { c.Location("/done"); return c.Status(201).SendString("done") }, false},
		"an-error":   {422, "no", func(fiber.Ctx) error { return fiber.NewError(422, "no") }, false},
		"broken":     {500, "broken", func(fiber.Ctx) error { return errors.New("broken") }, false},
		"stream":     {200, "a stream", func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("a stream"), 8) }, false},
		"endless":    {200, "a stream", func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("a stream")) }, true},
		"large":      {200, strings.Repeat("x", 101), func(c fiber.Ctx) error { return c.SendString(strings.Repeat("x", 101)) }, true},
		"cookie":     {200, "x", func(c fiber.Ctx) error { c.Cookie(&fiber.Cookie{Name: "user", Value: "1"}); return c.SendString("x") }, true},
		"private":    {200, "mine", func(c fiber.Ctx) error { c.Set("Cache-Control", "private"); return c.SendString("mine") }, true},
		"hijacked":   {200, "", func(c fiber.Ctx) error { c.RequestCtx().Hijack(func(net.Conn) {}); return nil }, true},
		"by-locales": {200, "x", func(c fiber.Ctx) error { c.Vary("Accept-Language"); return c.SendString("x") }, true},
	}
	s := newServer(t, func(app *fiber.App) {
		one := fiberlock.Coalesce(locks, coalesce.Config{MaxAnswer: 100})
		for name, way := range ways {
			app.Get("/"+name, one, func(c fiber.Ctx) error { runs.Add(1); return way.handle(c) })
		}
	})
	for name, way := range ways {
		s.WantTwice(s.Shared("/"+name, &runs), way.status, way.body, !way.alone)
	}
}

// Requests that wait get the answer of the run, and the handlers that follow do not run for them. Fiber
// uses its buffers again for other requests meanwhile.
func TestCoalesce_Waits(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	running, end := make(chan struct{}), make(chan struct{})
	s := newServer(t, func(app *fiber.App) {
		app.Get("/report", fiberlock.Coalesce(locks, coalesce.Config{}), func(c fiber.Ctx) error {
			close(running)
			<-end
			c.Set("X-Sold", "7")
			return c.SendString("sold: 7")
		})
		app.Get("/other", func(c fiber.Ctx) error { return c.SendString(strings.Repeat("other", 10)) })
	})
	answers := make(chan locktest.Answer, 3)
	get := func() { answers <- s.Do(s.NewRequest(http.MethodGet, "/report", "")) }
	go get()
	<-running
	go get()
	go get()
	close(end)
	shared := 0
	for range 3 {
		s.Want("GET", "/other", 200, "otherother")
		a := <-answers
		if a.Status != 200 || a.Body != "sold: 7" || a.Header.Get("X-Sold") != "7" {
			t.Errorf("answer %v", a)
		}
		shared += strings.Count(a.Header.Get("Reqlock-Shared"), "1")
	}
	if shared != 2 {
		t.Errorf("%d shared answers, want 2", shared)
	}
}

// The handler does not see what its client has already. Who has the answer gets 304.
func TestCoalesce_Conditions(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	restored := make(chan string, 2)
	s := newServer(t, func(app *fiber.App) {
		app.Get("/report", func(c fiber.Ctx) error {
			err := c.Next()
			restored <- strings.Clone(c.Get("If-None-Match"))
			return err
		}, fiberlock.Coalesce(locks, coalesce.Config{}), func(c fiber.Ctx) error {
			c.Set("ETag", `"7"`)
			return c.SendString("sold: 7" + c.Get("If-None-Match"))
		})
	})
	ask := func() locktest.Answer {
		r := s.NewRequest(http.MethodGet, "/report", "")
		r.Header.Set("If-None-Match", `"7"`)
		return s.Do(r)
	}
	if a := ask(); a.Status != 200 || a.Body != "sold: 7" {
		t.Errorf("the run: %v", a)
	}
	if a := ask(); a.Status != 304 || a.Body != "" || a.Header.Get("Reqlock-Shared") != "1" {
		t.Errorf("another request: %v", a)
	}
	for range 2 {
		if tag := <-restored; tag != `"7"` {
			t.Errorf("middleware further out finds If-None-Match %q", tag)
		}
	}
}

func TestCoalesce_Refuses(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	locktest.WantPanic(t, "Keep is -1ns", func() { fiberlock.Coalesce(locks, coalesce.Config{Keep: -1}) })
}

// A handler that would get only the rest of a body is refused once, as without Coalesce. The body fits the
// buffers of the connection: a client that still writes when the server hangs up misses the answer.
func TestCoalesce_PartlyRead(t *testing.T) {
	t.Parallel()
	reads := func(r *http.Request) (string, error) {
		_, err := r.Body.Read(make([]byte, 1))
		return "k", err
	}
	app := fiber.New(fiber.Config{StreamRequestBody: true})
	app.Post("/report", fiberlock.Coalesce(locktest.NewLocks(t), coalesce.Config{Key: reads, Unsafe: "a query"}),
		func(c fiber.Ctx) error { return c.SendString("ran") })
	s := newAppServer(t, app)
	a := s.Do(s.NewRequest(http.MethodPost, "/report", strings.Repeat("b", 1<<16)))
	if a.Status != 413 || strings.Count(a.Body, "could not be read to its end") != 1 {
		t.Errorf("answer %v", a)
	}
}
