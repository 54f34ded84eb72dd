package fiberlock

import (
	"bytes"
	"maps"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

// Idempotent returns a middleware that runs the rest of the chain once for each idempotency key,
// and answers repeats with the first result. The error that a handler returns is answered by
// Fiber's ErrorHandler at once, so that this answer is recorded as well: middleware further out
// gets nil. If ErrorHandler returns an error, or leaves an empty 200, nothing is recorded, and a
// repeat runs again. Idempotent panics on a Config that can never work; see idempotency.New.
//
// An answer that is streamed, by SendStream or SendStreamWriter, is not recorded: repeats get 409
// not-replayable.
func Idempotent(locks *core.Client, cfg idempotency.Config) fiber.Handler {
	g, err := idempotency.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(runOnce(g))
}

// runOnce runs the rest of the chain for the first request of a key, and answers its repeats.
func runOnce(g *idempotency.Guard) served {
	return func(c fiber.Ctx, w *writer, r *http.Request) (err error) {
		g.Serve(w, r, func(r *http.Request, rec *idempotency.Recorder) {
			c.SetContext(r.Context())
			if rec == nil {
				err = w.run(r, fiber.Ctx.Next)
				return
			}
			err = record(c, w, r, rec)
		})
		return err
	}
}

// record runs the handler, and Fiber's answer to its error, and writes the answer to the recorder.
func record(c fiber.Ctx, w *writer, r *http.Request, rec *idempotency.Recorder) error {
	out := rec.Wrap(w)
	answer := c.Response()
	// With 200 and no body, Fiber's answer is as it was before the handler.
	untouched := func() bool {
		return answer.StatusCode() == http.StatusOK && !answer.IsBodyStream() && len(answer.Body()) == 0
	}
	if err := w.run(r, fiber.Ctx.Next); err != nil {
		err = c.App().ErrorHandler(c, err)
		if err != nil || untouched() {
			rec.Failed()
			return err
		}
	}
	if r.Context().Err() != nil && untouched() { // it was interrupted, and has answered nothing
		return nil
	}
	if answer.IsBodyStream() {
		rec.Bypassed(answer.StatusCode())
		return nil
	}
	status, body := answer.StatusCode(), bytes.Clone(answer.Body())
	if status == http.StatusNoContent || status == http.StatusNotModified {
		body = nil // fasthttp sends none
	}
	clear(w.header)
	maps.Copy(w.header, headerOf(c))
	out.WriteHeader(status)
	if len(body) == 0 {
		return nil
	}
	_, err := out.Write(body)
	return err
}
