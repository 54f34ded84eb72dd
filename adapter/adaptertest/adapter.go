package adaptertest

import (
	"net/http"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/middleware/idempotency"
)

// An Adapter says how guarded routes are mounted in one framework.
type Adapter struct {
	Name string // of the framework

	// Router returns what serves the routes. It translates their patterns into the framework's, and puts the adapter's
	// middleware, one for each of Route.Guards and then of Route.Once, around Route.Handler. It installs nothing else: no recovery, no log.
	Router func(locks *core.Client, routes ...Route) http.Handler

	// TellsStatus says that guard.Outcome has the status of the handler's answer.
	TellsStatus bool

	// Rest is the name of the wildcard that the framework has for {rest...}. Empty: rest.
	Rest string
}

// A Route is one route of a server.
type Route struct {
	Method  string               // empty: any
	Pattern string               // as http.ServeMux has it, without method and host; each wildcard is a whole segment, the last may be {rest...}: "/orders/{id}/pay"
	Guards  []guard.Config       // the first is outermost; none: the route is not guarded
	Once    []idempotency.Config // inside the guards; the first is outermost; none: the route is not idempotent
	Handler http.HandlerFunc     // never looks at the framework
	Params  func(Params)         // called before Handler; may be nil
}

// Params is how handlers of a framework read a wildcard of their route: c.Param in Gin, r.PathValue
// in net/http.
type Params func(name string) string

// Serve runs the handler of the route. Adapters call it, inside the middleware.
func (route Route) Serve(w http.ResponseWriter, r *http.Request, params Params) {
	if route.Params != nil {
		route.Params(params)
	}
	route.Handler(w, r)
}
