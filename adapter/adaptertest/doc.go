// Package conformance is the behaviour over HTTP that package guard promises, as one suite of tests that the adapter of every
// framework must pass. It talks to real servers over real connections, and to a real Redis.
//
// The tests of this package are the adapters of this module, and the suite run with each of them. The adapter of another framework
// is tested by two functions:
//
//	func TestMain(m *testing.M)          { adaptertest.Main(m, adapter) }
//	func TestConformance(t *testing.T)   { adaptertest.Run(t, adapter) }
//
// [Run] runs every test of suite.go, in parallel, and logs a table of the results (table.go): go test -v shows it. Each test has an
// env (env.go): a Redis of its own, a client of the locks on it, a log and the list of outcomes. It mounts routes on a
// site (site.go), sends requests, and steers what happens inside with a gate (gate.go), a handler that stays until it is
// let out. When a test ends, its env makes sure that nothing is left: no lock, no channel, nothing in the client's Stats, no key
// in the log.
//
// [Main] also is the second process of the tests that need several: they run the test binary again, which then is a server
// of the same adapter and nothing else (processes.go).
package adaptertest
