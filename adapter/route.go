package adapter

import (
	"context"
	"net/http"

	"github.com/reqlock/reqlock/internal/request"
)

// SetRoute returns a copy of r with the context ctx, the pattern that a router has matched, and the
// values of its wildcards. Pass the values exactly as the router hands them to its handlers. The
// pattern replaces one that an outer router has set. keyfuncs.Pattern and keyfuncs.PathValue read
// them. Of two equal names the first counts, as in c.Param of Gin and Echo. It panics if there are
// more names than values.
//
// r keeps its own pattern and values.
func SetRoute(ctx context.Context, r *http.Request, pattern string, names, values []string) *http.Request {
	r = withPathValues(ctx, r, names, values)
	r.Pattern = pattern
	return r
}

// withPathValues returns a copy of r whose path values may be set. A shallow copy shares them with
// r, which the goroutine of an earlier handler may still read. So the copy is shallow only if there
// is nothing to set, or r has no values because no router has matched before.
func withPathValues(ctx context.Context, r *http.Request, names, values []string) *http.Request {
	differ := false
	for i, name := range names {
		differ = differ || r.PathValue(name) != values[i]
	}
	if differ && r.Pattern != "" {
		r = r.Clone(ctx)
	} else {
		r = r.WithContext(ctx)
	}
	if differ {
		for i := len(names) - 1; i >= 0; i-- {
			r.SetPathValue(names[i], values[i])
		}
	}
	return r
}

// KeepForm gives r the multipart form that a handler parsed with a copy of r, such as the one that
// SetRoute returned. Without it the temporary files of the form stay: a server removes only those
// of the request it knows. Call it when the handler has returned.
func KeepForm(r, copied *http.Request) { request.KeepForm(r, copied) }

// Buffered reports whether the whole body of r is in memory, because a guard or a key function has
// read it. Reading it then does not wait for the client.
func Buffered(r *http.Request) bool { return request.IsBodyRead(r) }
