package guard

import (
	"context"
	"net/http"
)

// SetRoute returns a copy of r that knows what a router has matched, for keyfuncs.Pattern and
// keyfuncs.PathValue: the pattern, in place of the one that a router further out has set, and the
// values of its wildcards, as the router hands them to its handlers. It is for adapters of routers
// that keep their parameters to themselves. Of two equal names the first counts, as for c.Param in
// Gin and Echo.
//
// The copy has the context ctx.
func SetRoute(ctx context.Context, r *http.Request, pattern string, names, values []string) *http.Request {
	r = withPathValues(ctx, r, names, values)
	r.Pattern = pattern
	return r
}

// withPathValues returns a copy of r. A shallow copy shares the path values with r, and a goroutine
// that a handler has left behind may still read those: it will do only if nothing is written, or if
// r has none because no router has matched before.
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

// KeepForm keeps a form that was parsed with a copy of r: a server removes the files of the
// requests that it knows. It is for adapters, after SetRoute.
func KeepForm(r, copied *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = copied.MultipartForm
	}
}
