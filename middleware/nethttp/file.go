package httplock

import (
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/idempotency"
)

// A File guards the routes that a file lists; see package routes.
type File struct {
	idempotency.File
	table *idempotency.Table
}

// FromFile reads a table of routes from a file, such as locks.json. It fails on any mistake in it.
func FromFile(locks *core.Client, path string, opts routes.Options) (*File, error) {
	table, err := coalesce.Open(locks, path, opts)
	if err != nil {
		return nil, err
	}
	return &File{table.File(), table}, nil
}

// Wrap is a middleware, which like that of New goes around the handler of a route, and panics on
// the same handlers. It guards requests whose route has a row in the file, and passes those of
// other routes. Where no route has matched it answers 500: it cannot know which row applies. So it
// does around a router inside another one, such as in the Use of a router that chi has mounted, for
// requests whose path is that of a row.
func (f *File) Wrap(next http.Handler) http.Handler {
	return around(f.serve)(next)
}

func (f *File) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	found, err := f.table.ServeHandler(r, func(guards idempotency.Guards) {
		shared, _ := guards.Shared.(*coalesce.Guard)
		if guards.Lock != nil && (guards.Once != nil || shared != nil) {
			next = around(underLock(guards.Lock))(next)
		}
		switch {
		case guards.Once != nil:
			runOnce(guards.Once)(w, r, next)
		case shared != nil:
			runForAll(shared)(w, r, next)
		default:
			underLock(guards.Lock)(w, r, next)
		}
	})
	switch {
	case err != nil:
		f.table.Unrouted.Serve(w, idempotency.WithoutRoute(r, err), next.ServeHTTP)
	case !found:
		next.ServeHTTP(w, r)
	}
}

// Check returns an error that names each row of the file that is no route of mux, such as after a
// typing mistake: it would do nothing. Call it when all routes are there. Versions of the file that
// are loaded later are checked as well, and what is wrong with them is logged.
func (f *File) Check(mux *http.ServeMux) error { return f.table.Check(routes.Served(mux)) }

// CheckRoutes is Check for a router that lists its routes, as chi.Walk and Gorilla's Router.Walk
// do. Each is written "METHOD PATTERN", or "PATTERN" for all methods.
func (f *File) CheckRoutes(list ...string) error {
	return f.table.Check(routes.Listed(list, func(route string) (method, pattern string) {
		method, pattern, found := strings.Cut(route, " ")
		if !found {
			return "", route
		}
		return method, pattern
	}))
}
