package httplock

import (
	"net/http"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
)

// Coalesce returns a middleware that runs a handler once for all requests that want the same at the
// same time, and gives them its answer. Like that of New, it goes around the handler of a route, and
// panics on the same handlers. Coalesce panics on a Config that can never work; see coalesce.New.
func Coalesce(locks *core.Client, cfg coalesce.Config) func(http.Handler) http.Handler {
	g, err := coalesce.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(runForAll(g))
}

// runForAll serves requests that want the same with one run.
func runForAll(g *coalesce.Guard) server {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		g.Serve(w, r, func(r *http.Request, rec *coalesce.Recorder) { next.ServeHTTP(rec.Wrap(w), r) })
	}
}
