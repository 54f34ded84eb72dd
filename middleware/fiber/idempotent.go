package fiberlock

import (
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
)

// Idempotent returns a middleware that runs the rest of the chain once for each idempotency key,
// and answers repeats with the first result. The error that a handler returns is answered by
// Fiber's ErrorHandler at once, so that this answer is recorded as well: middleware further out
// gets nil. If ErrorHandler returns an error, or leaves an empty 200, nothing is recorded, and a
// repeat runs again. Idempotent panics on a Config that can never work; see idempotency.New.
//
// A body stream of a known length, such as that of SendFile, is read into memory and recorded if it
// is at most Config.MaxResponseBody. If it is longer, or its length is not known, as with
// SendStreamWriter or SendStream without a size, it is not recorded: repeats get 409 not-replayable.
func Idempotent(locks *core.Client, cfg idempotency.Config) fiber.Handler {
	g, err := idempotency.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(runOnce(g, fiber.Ctx.Next))
}

// runOnce runs next for the first request of a key, and answers its repeats.
func runOnce(g *idempotency.Guard, next func(fiber.Ctx) error) served {
	return func(c fiber.Ctx, w *writer, r *http.Request) (err error) {
		g.Serve(w, r, func(r *http.Request, rec *idempotency.Recorder) {
			c.SetContext(r.Context())
			if rec == nil {
				err = w.run(r, next)
				return
			}
			err = record(w, r, rec, next)
		})
		return err
	}
}
