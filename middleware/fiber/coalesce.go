package fiberlock

import (
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
)

// Coalesce returns a middleware that runs the rest of the chain once for all requests that want the
// same at the same time, and gives them its answer. As with Idempotent, the error that a handler
// returns is answered by Fiber's ErrorHandler at once. A body stream is shared if its length is known
// and at most Config.MaxAnswer. Fiber sends an answer after the handler has returned, to the client
// of the run, too. Coalesce panics on a Config that can never work; see coalesce.New.
func Coalesce(locks *core.Client, cfg coalesce.Config) fiber.Handler {
	g, err := coalesce.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(runForAll(g, fiber.Ctx.Next))
}

// runForAll serves requests that want the same with one run of next.
func runForAll(g *coalesce.Guard, next func(fiber.Ctx) error) served {
	return func(c fiber.Ctx, w *writer, r *http.Request) (err error) {
		g.Serve(w, r, func(r *http.Request, rec *coalesce.Recorder) {
			c.SetContext(r.Context())
			if rec == nil {
				err = w.run(r, next)
				return
			}
			defer hideConditions(c)()
			err = record(w, r, rec, next)
		})
		return err
	}
}

// hideConditions takes away what the client of a run has already, because the others may not have it.
// The function that it returns puts it back.
func hideConditions(c fiber.Ctx) (restore func()) {
	header, hidden := &c.Request().Header, make(map[string][]byte)
	for _, name := range []string{fiber.HeaderIfNoneMatch, fiber.HeaderIfModifiedSince} {
		if value := header.Peek(name); len(value) > 0 {
			hidden[name] = slices.Clone(value)
			header.Del(name)
		}
	}
	return func() {
		for name, value := range hidden {
			header.SetBytesV(name, value)
		}
	}
}
