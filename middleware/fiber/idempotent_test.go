package fiberlock_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/internal/locktest"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

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
		app.Post("/", fiberlock.Idempotent(locktest.New(t), idempotency.Config{Scope: idempotency.ScopeGlobal}), test.handle)
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
	app.Post("/pay", fiberlock.Idempotent(locktest.New(t), idempotency.Config{Scope: idempotency.ScopeGlobal}), func(c fiber.Ctx) error {
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
