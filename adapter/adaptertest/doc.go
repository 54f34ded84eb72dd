// Package adaptertest checks the adapter of a web framework. Its suite is the behaviour over HTTP
// that packages guard, idempotency and coalesce promise; the adapters for net/http, Gin, Echo and
// Fiber pass it, and so does Caddy. It talks to real servers over real connections, and to a real
// Redis: redis-server must be installed.
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
//			share := func(cfg coalesce.Config) framework.Middleware { return frameworklock.Coalesce(locks, cfg) }
//			for _, middleware := range slices.Backward(adaptertest.AllLayers(route, lock, once, share)) {
//				handler = middleware(handler)
//			}
//			r.Handle(route.Method, route.Pattern, handler) // with the framework's own wildcards
//		}
//		return r
//	}
//
// A framework that serves no http.Handler has [Adapter.Serve] in place of Router. An adapter that
// offers no Coalesce says why in [Adapter.NoCoalesce], and uses [Layers].
//
// [Run] runs every test of suite.go, in parallel, and logs a table of the results, which go test -v
// shows. It takes minutes on a small machine. [RunSpellings] repeats the tests of how URLs may be
// spelled, for a router that is set up in another way. [Main] runs more tests at a time than there
// are processors, because most of them wait; it fails if a goroutine is left at the end. Some tests
// need several server processes: they start the test binary again, and Main serves in it.
//
// # How the suite works
//
// Each test has a fixture (fixture.go): its own Redis, a client of the locks on it, a log and the
// list of outcomes. It mounts routes on a testServer (testserver.go), sends requests, and steers
// the handler with a blockingHandler (blockinghandler.go), which runs until the test ends it. When
// a test ends, its fixture checks that nothing is left: no lock, no channel, nothing in the
// client's Stats, no key in the log. Most tests need these helpers:
//
//	fx.serve(routes...)                 a server with routes, and a client of it
//	s.get(path), s.post(path, body)     send a request and return the answer
//	s.postWithKey(body)                 sends a POST with an idempotency key
//	s.start(request), p.mustGetAnswer() send a request in the background, and wait for the answer
//	answer.want(fx, 409, body)          checks an answer
//	g.nextRun(), run.finish()           wait until a blockingHandler runs, and make it return
//	fx.mustHold(name)                   holds a lock, as another process would
//	fx.outcome()                        waits for the next outcome that a guard observed
//	fx.eventually, mustReceive          wait for a condition, or for a channel
package adaptertest
