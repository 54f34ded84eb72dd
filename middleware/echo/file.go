package echolock

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/idempotency"
)

// A File guards the routes that a file lists; see package routes.
type File struct {
	idempotency.File
	table *idempotency.Table
	wrap  *wrapper
}

// FromFile reads a table of routes from a file, such as locks.json. It fails on any mistake in it.
// options are those of New.
func FromFile(locks *core.Client, path string, opts routes.Options, options ...Option) (*File, error) {
	wrap := newWrapper(options, &opts.ErrorHandler)
	table, err := coalesce.Open(locks, path, opts)
	if err != nil {
		return nil, err
	}
	return &File{table.File(), table, wrap}, nil
}

// Middleware returns a middleware for an Echo, a group or a route. It guards requests whose route
// has a row in the file, and passes all others. With Pre, Echo has not matched the route: requests
// that have one get 500, because the file cannot know which row applies.
func (f *File) Middleware() echo.MiddlewareFunc {
	return f.wrap.around(func(c echo.Context, r *http.Request, next echo.HandlerFunc) (err error) {
		if r.Pattern == "" { // Echo has not routed the request yet: the middleware runs in Pre.
			return underLock(f.table.Unrouted)(c, r, next)
		}
		f.table.CheckOnce(func() func(routes.Route) bool { return listed(c.Echo()) })
		found := f.table.Serve(r, func(guards idempotency.Guards) {
			shared, _ := guards.Shared.(*coalesce.Guard)
			c.SetRequest(r)
			inner := next
			if guards.Lock != nil && (guards.Once != nil || shared != nil) {
				inner = f.wrap.around(underLock(guards.Lock))(next) // It answers its own refusals, so that they are answers of the run.
			}
			switch {
			case guards.Once != nil:
				err = runOnce(guards.Once)(c, r, inner)
			case shared != nil:
				err = recording(shared.Serve)(c, r, inner)
			default:
				err = underLock(guards.Lock)(c, r, next)
			}
		})
		if !found {
			c.SetRequest(r)
			err = next(c)
		}
		return err
	})
}

// Check returns an error that names each row of the file that is no route of e, such as after a
// typing mistake: it would do nothing. Call it when all routes are there. Versions of the file that
// are loaded later are checked as well, and what is wrong with them is logged. Without Check, the
// first request has all of that logged.
func (f *File) Check(e *echo.Echo) error { return f.table.Check(listed(e)) }
