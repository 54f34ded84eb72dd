package fiberlock

import (
	"net/http"
	"slices"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/idempotency"
)

// A File guards the routes that a file lists; see package routes.
type File struct {
	idempotency.File
	table *idempotency.Table
	// isRoute remembers for each *fiber.Route whether it is a route or a Use.
	isRoute sync.Map
}

// FromFile reads a table of routes from a file, such as locks.json. It fails on any mistake in it.
func FromFile(locks *core.Client, path string, opts routes.Options) (*File, error) {
	table, err := coalesce.Open(locks, path, opts)
	if err != nil {
		return nil, err
	}
	return &File{File: table.File(), table: table}, nil
}

// Middleware returns a middleware for routes, before their handlers. It guards requests whose route
// has a row in the file, and passes those of other routes. With App.Use and App.Group, Fiber has
// not matched the route that will answer: it answers 500, because it cannot know which row applies.
func (f *File) Middleware() fiber.Handler {
	return around(func(c fiber.Ctx, w *writer, r *http.Request) (err error) {
		if !f.inRoute(c) {
			return underLock(f.table.Unrouted, fiber.Ctx.Next)(c, w, r)
		}
		f.table.CheckOnce(func() func(routes.Route) bool { return listed(c.App()) })
		found := f.table.Serve(r, func(guards idempotency.Guards) {
			shared, _ := guards.Shared.(*coalesce.Guard)
			next := fiber.Ctx.Next
			if guards.Lock != nil && (guards.Once != nil || shared != nil) {
				next = around(underLock(guards.Lock, next))
			}
			switch {
			case guards.Once != nil:
				err = runOnce(guards.Once, next)(c, w, r)
			case shared != nil:
				err = runForAll(shared, next)(c, w, r)
			default:
				err = underLock(guards.Lock, next)(c, w, r)
			}
		})
		if !found {
			err = w.run(r, fiber.Ctx.Next)
		}
		return err
	})
}

// inRoute reports whether the middleware runs as part of a route, and not of a Use.
func (f *File) inRoute(c fiber.Ctx) bool {
	route := c.Route()
	known, ok := f.isRoute.Load(route)
	if !ok {
		known = isListed(c.App(), route)
		f.isRoute.Store(route, known)
	}
	return known.(bool)
}

// isListed tells routes from Uses by Fiber's list of routes. It has copies, which share the
// handlers.
func isListed(app *fiber.App, route *fiber.Route) bool {
	handlers := route.Handlers
	return slices.ContainsFunc(app.GetRoutes(true), func(route fiber.Route) bool {
		return len(route.Handlers) > 0 && len(handlers) > 0 && &route.Handlers[0] == &handlers[0]
	})
}

// Check returns an error that names each row of the file that is no route of the app, such as after
// a typing mistake: it would do nothing. Call it when all routes are there. Versions of the file
// that are loaded later are checked as well, and what is wrong with them is logged. Without Check,
// the first request has all of that logged.
func (f *File) Check(app *fiber.App) error { return f.table.Check(listed(app)) }

func listed(app *fiber.App) func(routes.Route) bool {
	return routes.Listed(app.GetRoutes(true), func(r fiber.Route) (method, pattern string) { return r.Method, r.Path })
}
