package ginlock

import (
	"net/http"

	"github.com/gin-gonic/gin"
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

// Middleware returns a middleware for an engine, a group or a route. It guards requests whose route
// has a row in the file, and passes all others.
func (f *File) Middleware() gin.HandlerFunc {
	return around(func(c *gin.Context, r *http.Request, next chain) (ran bool) {
		found := f.table.Serve(r, func(guards idempotency.Guards) {
			shared, _ := guards.Shared.(*coalesce.Guard)
			inner := next
			if guards.Lock != nil {
				inner = func(c *gin.Context, r *http.Request) bool { return underLock(guards.Lock)(c, r, next) }
			}
			switch {
			case guards.Once != nil:
				ran = runOnce(guards.Once)(c, r, inner)
			case shared != nil:
				ran = runForAll(shared)(c, r, inner)
			default:
				ran = inner(c, r)
			}
		})
		if !found {
			ran = next(c, r)
		}
		return ran
	})
}

// Check returns an error that names each row of the file that is no route of the engine, such as
// after a typing mistake: it would do nothing. Call it when all routes are there. Versions of the
// file that are loaded later are checked as well, and what is wrong with them is logged.
func (f *File) Check(engine *gin.Engine) error {
	return f.table.Check(routes.Listed(engine.Routes(), func(r gin.RouteInfo) (method, pattern string) { return r.Method, r.Path }))
}
