package fiberlock_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

// asked is what a client gets. An answer that is cut off has the error as its status.
type asked struct {
	status string
	length int64
	header http.Header
	body   string
}

// ask sends a request with a key.
func ask(t *testing.T, app *fiber.App, method, path string, header http.Header) asked {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	maps.Copy(r.Header, header)
	r.Header.Set("Idempotency-Key", "k")
	a, err := app.Test(r, fiber.TestConfig{})
	if err != nil {
		return asked{status: err.Error()}
	}
	body, err := io.ReadAll(a.Body)
	if err != nil {
		a.Status = err.Error()
	}
	a.Header.Del("Date")
	return asked{a.Status, a.ContentLength, a.Header, string(body)}
}

// A tracked stream knows whether it was closed.
type tracked struct {
	io.Reader
	closed atomic.Int64
}

func (s *tracked) Close() error { s.closed.Add(1); return nil }

// An answer by a stream of a known length is the one of plain Fiber, and recorded if it is not too
// long. So is an answer without a body.
func TestIdempotent_Streams(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file.txt")
	if err := os.WriteFile(file, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	// With a cache, fasthttp keeps a goroutine for good.
	sendFile := func(c fiber.Ctx) error {
		return c.SendFile(file, fiber.SendFile{ByteRange: true, CacheDuration: -1, MaxAge: 60})
	}
	var stream tracked
	sends := func(text string, size ...int) fiber.Handler {
		return func(c fiber.Ctx) error {
			stream.Reader = strings.NewReader(text)
			return c.Status(201).SendStream(&stream, size...)
		}
	}
	skips := func(body string, length int) fiber.Handler {
		return func(c fiber.Ctx) error {
			c.Response().SkipBody = true
			c.Response().Header.SetContentLength(length)
			return c.SendString(body)
		}
	}
	for name, test := range map[string]struct {
		method   string
		limit    int64
		header   http.Header
		handle   fiber.Handler
		replayed bool
	}{
		"a file":                    {"POST", 6, nil, sendFile, true},
		"a part of a file":          {"POST", 6, http.Header{"Range": {"bytes=2-3"}}, sendFile, true},
		"a file that is too long":   {"POST", 5, nil, sendFile, false},
		"a file, HEAD":              {"HEAD", 5, nil, sendFile, true},
		"no file":                   {"POST", 999, nil, func(c fiber.Ctx) error { return c.SendFile(file+"2", fiber.SendFile{CacheDuration: -1}) }, true},
		"a stream with a size":      {"POST", 6, nil, sends("stream", 6), true},
		"a stream, HEAD":            {"HEAD", 6, nil, sends("stream", 6), true},
		"a stream, no content":      {"POST", 6, nil, func(c fiber.Ctx) error { defer c.Status(204); return sends("stream", 6)(c) }, true},
		"a stream without a size":   {"POST", 6, nil, sends("stream"), false},
		"a stream that is cut off":  {"POST", 6, nil, sends("str", 6), false},
		"SkipBody, HEAD":            {"HEAD", 6, nil, skips("body", 0), true},
		"SkipBody, HEAD, a length":  {"HEAD", 6, nil, skips("", 7), true},
		"a length, HEAD":            {"HEAD", 6, nil, func(c fiber.Ctx) error { c.Response().Header.SetContentLength(7); return nil }, true},
		"SkipBody, 304":             {"POST", 6, nil, func(c fiber.Ctx) error { defer c.Status(304); return skips("body", 0)(c) }, true},
		"SkipBody, but for no HEAD": {"POST", 6, nil, skips("body", 0), false},
	} {
		cfg := idempotency.Config{Scope: idempotency.ScopeGlobal, Methods: []string{"POST", "HEAD"}, MaxResponseBody: test.limit}
		app, runs := fiber.New(), 0
		counted := func(c fiber.Ctx) error { runs++; return test.handle(c) }
		app.Add([]string{test.method}, "/plain", counted)
		app.Add([]string{test.method}, "/", fiberlock.Idempotent(locktest.NewLocks(t), cfg), counted)

		plain := ask(t, app, test.method, "/plain", test.header)
		if plain.status[:3] == "204" || plain.status[:3] == "304" {
			// The guard leaves out a length, and keeps Fiber's default.
			plain.header.Del("Content-Length")
			plain.header.Set("Content-Type", "text/plain; charset=utf-8")
		}
		if got := ask(t, app, test.method, "/", test.header); !reflect.DeepEqual(got, plain) {
			t.Errorf("%s: the first request gets %+v, want %+v", name, got, plain)
		}
		again := ask(t, app, test.method, "/", test.header)
		if test.replayed {
			plain.header.Set("Idempotent-Replayed", "true")
			if !reflect.DeepEqual(again, plain) {
				t.Errorf("%s: the repeat gets %+v, want %+v", name, again, plain)
			}
		} else if again.status[:3] != "409" || !strings.Contains(again.body, "not-replayable") {
			t.Errorf("%s: the repeat gets %+v, want 409 not-replayable", name, again)
		}
		if runs != 2 {
			t.Errorf("%s: the handler ran %d times with the key, want once", name, runs-1)
		}
		if n := stream.closed.Swap(0); stream.Reader != nil && n != 2 {
			t.Errorf("%s: the two streams were closed %d times", name, n)
		}
		stream.Reader = nil
	}
}

// What Fiber's ErrorHandler leaves of an error is recorded only if it is an answer.
func TestIdempotent_ErrorHandler(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle fiber.Handler
		answer fiber.ErrorHandler
		want   [2]string // the answers to two requests
	}{
		"answers": {
			func(fiber.Ctx) error { return errors.New("no") },
			func(c fiber.Ctx, _ error) error { return c.Status(422).SendString("no") },
			[2]string{"422 no", "422 no, replayed"},
		},
		"writes nothing": {
			func(fiber.Ctx) error { return errors.New("no") },
			func(fiber.Ctx, error) error { return nil },
			[2]string{"200 ", "200 "},
		},
		"fails": {
			func(fiber.Ctx) error { return errors.New("no") },
			func(_ fiber.Ctx, err error) error { return err },
			[2]string{"500 Internal Server Error", "500 Internal Server Error"},
		},
		"leaves the handler's answer": {
			func(c fiber.Ctx) error { _ = c.SendString("done"); return errors.New("too late") },
			func(fiber.Ctx, error) error { return nil },
			[2]string{"200 done", "200 done, replayed"},
		},
		"leaves the handler's status": {
			func(c fiber.Ctx) error { c.Status(201); return errors.New("too late") },
			func(fiber.Ctx, error) error { return nil },
			[2]string{"201 ", "201 , replayed"},
		},
	} {
		app := fiber.New(fiber.Config{ErrorHandler: test.answer})
		app.Post("/", fiberlock.Idempotent(locktest.NewLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal}), test.handle)
		for i, want := range test.want {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			a, err := app.Test(r, fiber.TestConfig{})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(a.Body)
			if err != nil {
				t.Fatal(err)
			}
			got := a.Status[:4] + string(body)
			if a.Header.Get("Idempotent-Replayed") == "true" {
				got += ", replayed"
			}
			if got != want {
				t.Errorf("%s: request %d gets %q, want %q", name, i, got, want)
			}
		}
	}
}

// A form whose boundary no writer of forms accepts is refused. fasthttp's Body is the text of that
// error for each of them.
func TestIdempotent_MalformedBoundary(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Post("/pay", fiberlock.Idempotent(locktest.NewLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal}), func(c fiber.Ctx) error {
		return c.SendString(c.FormValue("amount"))
	})
	for _, test := range []struct {
		boundary, amount string
		status           int
	}{{"a+b", "50", 200}, {"a+b", "70", 422}, {"a!b", "50", 400}, {"a!b", "70", 400}} {
		form := "--" + test.boundary + "\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n" + test.amount + "\r\n--" + test.boundary + "--\r\n"
		r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(form))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+test.boundary)
		r.Header.Set("Idempotency-Key", test.boundary)
		a, err := app.Test(r, fiber.TestConfig{Timeout: 0})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if text, _ := io.ReadAll(a.Body); a.StatusCode != test.status {
			t.Errorf("boundary %s, amount %s: %d %s, want %d", test.boundary, test.amount, a.StatusCode, text, test.status)
		}
	}
}
