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

// KeepForm gives r the multipart form that was parsed with a copy of it: a server removes the
// temporary files only of the requests it knows.
func KeepForm(r, copied *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = copied.MultipartForm
	}
}
