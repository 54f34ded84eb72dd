package fiberlock

import (
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v3"
)

// HTTP returns request and answer of Fiber as net/http has them, for the handlers of the suite.
func HTTP(c fiber.Ctx) (*HTTPWriter, *http.Request, error) {
	r, err := requestOf(c, strings.Clone(c.Path()), bodyOf(c))
	if err != nil {
		return nil, nil, err
	}
	var names, values []string
	r.Pattern, names, values = routeOf(c)
	for i, name := range names {
		r.SetPathValue(name, values[i])
	}
	return &HTTPWriter{c: c, header: headerOf(c)}, r.WithContext(c.Context()), nil
}

// An HTTPWriter writes to Fiber's answer.
type HTTPWriter struct {
	c      fiber.Ctx
	header http.Header
	begun  bool
}

func (w *HTTPWriter) Header() http.Header { return w.header }

func (w *HTTPWriter) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	w.c.Status(status)
	w.SetHeader()
}

func (w *HTTPWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.c.Write(p)
}

// SetHeader makes the header that of Fiber's answer.
func (w *HTTPWriter) SetHeader() {
	answer := &w.c.Response().Header
	for name := range headerOf(w.c) {
		answer.Del(name)
	}
	for name, values := range w.header {
		for _, value := range values {
			answer.Add(name, value)
		}
	}
}
