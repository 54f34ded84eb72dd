// Package request is what guards, key functions and adapters share about one HTTP request: its body
// in memory, within a budget for the whole process, its writers, and what it tells logs.
package request

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
