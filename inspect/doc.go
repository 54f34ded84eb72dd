// Package inspect shows which locks are held on a Redis, who holds them, for which request, and who
// waits.
//
//	mux.Handle("GET /debug/locks/", requireAdmin(inspect.Handler(locks, inspect.Options{})))
//
// Handler is a page for the people who run the service. List and Show return the same data to a
// program. They read what all processes have stored in Redis, those that use Redisson included.
// docs/guides/inspect.md is the guide. The command cmd/reqlock is built on this package.
package inspect
