package adaptertest

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
)

// An Adapter mounts guarded routes in one framework.
type Adapter struct {
	// Name is that of the framework. No two adapters of Main have the same.
	Name string

	// Router returns a handler that serves the routes. It translates their patterns into the
	// framework's, and puts the adapter's middleware, which AllLayers makes, around Route.Handler. It
	// installs nothing else: no recovery, no log.
	Router func(locks *core.Client, routes ...Route) http.Handler

	// Serve stands in for Router if the framework does not serve http.Handlers: it starts the
	// framework's own server, and returns at once. stop ends it when all requests have ended, or
	// with an error at the end of its context. What the framework cannot do of a Server makes
	// Exceptions of the tests that need it.
	Serve func(srv Server, locks *core.Client, routes ...Route) (stop func(context.Context) error)

	// TellsStatus reports whether guard.Outcome has the status of the handler's answer; see
	// guard.SetStatus.
	TellsStatus bool

	// LeavesErrors reports whether a handler of the framework can end with an error, for middleware
	// or the framework to answer. Then the framework's handler ends with Route.Err, unless it is nil.
	LeavesErrors bool

	// Exceptions are the tests that cannot hold in the framework, by name, each with the reason. The
	// table of the results has the reasons. The suite runs them as well, and fails if one holds.
	Exceptions map[string]string

	// NoCoalesce says why the adapter offers no Coalesce. The table of the results has it in place of
	// the tests of coalescing, which do not run. "": it offers one, and they run.
	NoCoalesce string

	// Goroutines are functions, such as "example.com/framework.(*Pool).Start.func1", of goroutines that
	// the framework keeps when its servers have ended. All others that are left are failures.
	Goroutines []string

	// Rest is the name of the framework's wildcard for {rest...}. "": rest.
	Rest string
}

// A Route is one route of a server.
type Route struct {
	Method string // "": any

	// Pattern is one of http.ServeMux, without method and host, such as "/orders/{id}/pay". Each
	// wildcard is a whole segment; the last one may be {rest...}.
	Pattern string

	// Shares lets the requests of the route share answers, outside Once and Guards. nil: they do not.
	Shares *coalesce.Config
	// Once makes the route idempotent, and Guards, which are inside Once, guard it. The first of each
	// is outermost. Without any, the route is neither.
	Once   []idempotency.Config
	Guards []guard.Config
	// Handler knows only net/http. It is for Serve.
	Handler http.HandlerFunc
	// Params is called before Handler. nil: it is not.
	Params func(Params)

	// err returns Err. nil: it is nil. lockOutside puts Guards around Once.
	err         func() error
	lockOutside bool
}

// Layers is AllLayers for an adapter that has Adapter.NoCoalesce. It panics if Route.Shares is set.
func Layers[M any](route Route, lock func(guard.Config) M, once func(idempotency.Config) M) []M {
	return AllLayers(route, lock, once, func(coalesce.Config) M {
		panic("reqlock: adaptertest: a route has Shares; use AllLayers, or set Adapter.NoCoalesce")
	})
}

// AllLayers returns the middleware of a route, the outermost first. It is what share makes of
// Route.Shares, what once makes of each of Route.Once, and what lock makes of each of Route.Guards.
func AllLayers[M any](route Route, lock func(guard.Config) M, once func(idempotency.Config) M, share func(coalesce.Config) M) (layers []M) {
	if route.Shares != nil {
		layers = append(layers, share(*route.Shares))
	}
	guards, onces := mapped(route.Guards, lock), mapped(route.Once, once)
	if route.lockOutside {
		return slices.Concat(layers, guards, onces)
	}
	return slices.Concat(layers, onces, guards)
}

func mapped[C, M any](configs []C, layer func(C) M) (layers []M) {
	for _, cfg := range configs {
		layers = append(layers, layer(cfg))
	}
	return layers
}

// ErrUnanswered is a Route.Err. The framework's error handler, if it has one, must not answer it.
// Another error is answered as the framework does it.
var ErrUnanswered = errors.New("reqlock: adaptertest: an error that nothing answers")

// Err returns the error that the framework's handler ends with, after Route.Serve; see
// Adapter.LeavesErrors.
func (route Route) Err() error {
	if route.err == nil {
		return nil
	}
	return route.err()
}

// Params reads a wildcard of the route, as handlers of the framework do: c.Param in Gin,
// r.PathValue in net/http.
type Params func(name string) string

// Serve runs the handler of the route. The framework's handler calls it, inside the middleware.
func (route Route) Serve(w http.ResponseWriter, r *http.Request, params Params) {
	if route.Params != nil {
		route.Params(params)
	}
	route.Handler(w, r)
}
