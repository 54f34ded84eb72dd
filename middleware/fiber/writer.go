package fiberlock

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/guard"
)

// A writer is an http.ResponseWriter over Fiber's answer, for refusals and replays. Handlers write
// to Fiber's itself.
type writer struct {
	c fiber.Ctx
	// body is that of the request. nil: it has none.
	body   *body
	header http.Header
	begun  bool
	// fasthttp sends no body, as for HEAD, but a Content-Length that was set.
	skipsBody bool
}

func newWriter(c fiber.Ctx, b *body) *writer {
	return &writer{c: c, body: b, header: headerOf(c), skipsBody: c.RequestCtx().IsHead()}
}

// run runs next, which finds the body that r has, or answers that there is only a rest of it.
func (w *writer) run(r *http.Request, next func(fiber.Ctx) error) error {
	if w.body.putBack(r) {
		return next(w.c)
	}
	guard.WriteProblem(w, r, partlyRead)
	return nil
}

// headerOf returns a copy of the header that was set in Fiber's answer.
func headerOf(c fiber.Ctx) http.Header {
	header := make(http.Header)
	for name, value := range c.Response().Header.All() {
		switch key := http.CanonicalHeaderKey(string(name)); {
		case key == "Content-Length", key == "Transfer-Encoding":
			// fasthttp sets them.
		case key == "Content-Type" && len(c.Response().Header.PeekAll("Content-Type")) == 0:
		default:
			header[key] = append(header[key], string(value))
		}
	}
	return header
}

func (w *writer) Header() http.Header { return w.header }

// WriteHeader replaces Fiber's answer, which is not sent yet. fasthttp sends no informational
// answers (1xx).
func (w *writer) WriteHeader(status int) {
	if w.begun || status < http.StatusOK {
		return
	}
	w.begun = true
	w.replace(status, w.header)
}

func (w *writer) replace(status int, header http.Header) {
	answer := w.c.Response()
	answer.Reset()
	answer.SkipBody = w.skipsBody
	for name, values := range header {
		for _, value := range values {
			if !strings.EqualFold(name, "Content-Length") {
				answer.Header.Add(name, value)
			} else if length, err := strconv.Atoi(value); err == nil && w.skipsBody {
				answer.Header.SetContentLength(length) // otherwise fasthttp sets that of the body
			}
		}
	}
	answer.SetStatusCode(status)
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.c.Response().AppendBody(p)
	return len(p), nil
}

// Status returns the status of the answer, for guard.Outcome.
func (w *writer) Status() int { return w.c.Response().StatusCode() }
