// Package httplock guards net/http handlers with distributed locks: requests with the same key run
// one at a time, on however many machines the service runs.
//
//	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id")})
//	mux.Handle("POST /orders/{id}/pay", lock(pay))
//
// Wrap the handler of a route, not the router: before the router has matched, a request has neither
// path values nor a pattern. It works with every router for http.Handlers. Package guard
// documents Config and the answers that clients get. A handler gets its lease from LeaseFrom.
package httplock

import (
	"net/http"
	"reflect"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// Config says what to lock and how. It is guard.Config.
type Config = guard.Config

var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(nil, 0, ""))

// New returns a middleware that runs a handler under the lock of its request. It panics on a Config
// that can never work; see guard.New. The middleware panics on a nil handler and on a handler of
// http.TimeoutHandler, which must go around the guard.
func New(locks *core.Client, cfg Config) func(http.Handler) http.Handler {
	g, err := guard.New(locks, cfg)
	if err != nil {
		panic(err)
	}
	return around(underLock(g))
}

// A server serves the requests of a handler.
type server = func(w http.ResponseWriter, r *http.Request, next http.Handler)

// underLock serves requests under the lock of g.
func underLock(g *guard.Guard) server {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		g.Serve(w, r, func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			guard.SetStatus(r.Context(), status(w))
		})
	}
}

// status returns the status of the answer if w, or a writer that it wraps, knows it; 0: none does.
// The writers of net/http's server do not.
func status(w http.ResponseWriter) int {
	for {
		if known, ok := w.(interface{ Status() int }); ok {
			return known.Status()
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return 0
		}
		w = wrapper.Unwrap()
	}
}

// around returns a middleware that serves the requests of a handler.
func around(serve server) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("reqlock: httplock: the handler is nil")
		}
		if reflect.TypeOf(next) == timeoutHandler {
			panic("reqlock: httplock: the handler is an http.TimeoutHandler, which returns, and would release the lock, while the handler in it " +
				"still runs; want http.TimeoutHandler(lock(handler), ...)")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serve(w, r, next)
		})
	}
}
