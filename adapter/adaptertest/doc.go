// Package adaptertest checks the adapter of a web framework. Its suite is the behaviour over HTTP
// that packages guard and idempotency promise; the adapters for net/http, Gin, Echo and Fiber pass
// it, and so does Caddy. It talks to real servers over real connections, and to a real Redis:
// redis-server must be installed.
//
// A package that tests an adapter has one [Adapter] and two functions:
//
//	var adapter = adaptertest.Adapter{Name: "My framework", Router: router}
//
//	func TestMain(m *testing.M)        { adaptertest.Main(m, adapter) }
//	func TestConformance(t *testing.T) { adaptertest.Run(t, adapter) }
//
// Router mounts routes in the framework, with the adapter's middleware around them:
//
//	func router(locks *core.Client, routes ...adaptertest.Route) http.Handler {
//		r := framework.New()
//		for _, route := range routes {
//			handler := func(c *framework.Context) { route.Serve(c.Writer, c.Request, c.Param) }
//			lock := func(cfg guard.Config) framework.Middleware { return frameworklock.New(locks, cfg) }
//			once := func(cfg idempotency.Config) framework.Middleware { return frameworklock.Idempotent(locks, cfg) }
//			for _, middleware := range slices.Backward(adaptertest.Layers(route, lock, once)) {
//				handler = middleware(handler)
//			}
//			r.Handle(route.Method, route.Pattern, handler) // with the framework's own wildcards
//		}
//		return r
//	}
//
// A framework that serves no http.Handler has [Adapter.Serve] in place of Router.
//
// [Run] runs every test of suite.go, in parallel, and logs a table of the results, which go test -v
// shows. It takes minutes on a small machine. [RunSpellings] repeats the tests of how URLs may be
// spelled, for a router that is set up in another way. [Main] runs more tests at a time than there
// are processors, because most of them wait; it fails if a goroutine is left at the end. Some tests
// need several server processes: they start the test binary again, and Main serves in it.
//
// # How the suite works
//
// Each test has an env (env.go): its own Redis, a client of the locks on it, a log and the list of
// outcomes. It mounts routes on a site (site.go), sends requests, and steers the handler with a
// gate (gate.go), which stays inside until the test lets it out. When a test ends, its env checks
// that nothing is left: no lock, no channel, nothing in the client's Stats, no key in the log.
package adaptertest
