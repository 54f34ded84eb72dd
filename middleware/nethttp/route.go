package httplock

import (
	"net/http"

	"github.com/reqlock/reqlock/adapter"
)

// A Match returns what a router has matched for a request: the pattern of the route, and the values
// of its wildcards by name. "": no route has matched.
type Match = func(r *http.Request) (pattern string, values map[string]string)

// WithRoute returns a middleware for routers that do not set http.Request.Pattern and path values,
// such as Gorilla mux and httprouter. It sets them, so that keyfuncs.PathValue and keyfuncs.Pattern
// work in the guards inside it. http.ServeMux and chi need none. docs/guides/frameworks.md has the
// Match of mux and httprouter. WithRoute panics if match is nil.
func WithRoute(match Match) func(http.Handler) http.Handler {
	if match == nil {
		panic("reqlock: httplock: WithRoute(nil): want a function that returns what the router has matched")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, original *http.Request) {
			pattern, found := match(original)
			names, values := make([]string, 0, len(found)), make([]string, 0, len(found))
			for name, value := range found {
				names, values = append(names, name), append(values, value)
			}
			r := adapter.SetRoute(original.Context(), original, pattern, names, values)
			defer adapter.KeepForm(original, r)
			next.ServeHTTP(w, r)
		})
	}
}
