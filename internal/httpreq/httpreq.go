// Package httpreq has functions of *http.Request that several packages need.
package httpreq

import (
	"context"
	"net/http"
)

// Server returns the server that received the request of ctx; nil: unknown.
func Server(ctx context.Context) *http.Server {
	srv, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	return srv
}

// ServerValue returns what the context of a request to srv has for http.ServerContextKey.
func ServerValue(srv *http.Server) any {
	if srv == nil {
		return nil
	}
	return srv
}

// KeepForm gives r the multipart form that was parsed with a copy of it: a server removes the
// temporary files only of the requests it knows.
func KeepForm(r, copied *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = copied.MultipartForm
	}
}

// Outermost returns the first T among w and the writers that it unwraps to, as
// http.ResponseController finds it. Call it before the handler runs: a handler may replace the
// writer inside another one, as in Echo, while another goroutine unwraps it.
func Outermost[T any](w http.ResponseWriter) (found T, ok bool) {
	for ; w != nil && !ok; w = inner(w) {
		found, ok = w.(T)
	}
	return found, ok
}

// Innermost returns the last T among w and the writers that it unwraps to: that of the server,
// which other goroutines may use while the handler writes. That of a middleware may have state.
// Call it before the handler runs, as Outermost.
func Innermost[T any](w http.ResponseWriter) (found T, ok bool) {
	for ; w != nil; w = inner(w) {
		if t, is := w.(T); is {
			found, ok = t, true
		}
	}
	return found, ok
}

// inner returns the writer that w unwraps to; nil: none.
func inner(w http.ResponseWriter) http.ResponseWriter {
	outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
	if !ok {
		return nil
	}
	return outer.Unwrap()
}
