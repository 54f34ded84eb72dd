package httplock

import (
	"net/http"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
)

// Idempotent returns a middleware that runs a handler once for each idempotency key, and answers
// repeats with the first result. Like that of New, it goes around the handler of a route, and
// panics on the same handlers. Idempotent panics on a Config that can never work; see
// idempotency.New.
func Idempotent(locks *core.Client, cfg idempotency.Config) func(http.Handler) http.Handler {
	g, err := idempotency.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(runOnce(g))
}

// runOnce serves requests once for each key.
func runOnce(g *idempotency.Guard) server {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		g.Serve(w, r, func(r *http.Request, rec *idempotency.Recorder) { next.ServeHTTP(rec.Wrap(w), r) })
	}
}
