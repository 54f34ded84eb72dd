// Package reqlock runs HTTP requests for the same thing one at a time, on any number of servers,
// with a lock in Redis. This package has only the version. These do the work:
//
//   - [github.com/reqlock/reqlock/middleware/nethttp], named httplock, is the middleware for
//     net/http. Start here.
//   - [github.com/reqlock/reqlock/middleware/gin] and
//     [github.com/reqlock/reqlock/middleware/echo], named ginlock and echolock, are the same for
//     Gin and Echo. Echo v5, Fiber and Caddy have modules of their own.
//   - [github.com/reqlock/reqlock/guard] implements the middleware: configuration, answers, the
//     handler's lock.
//   - [github.com/reqlock/reqlock/adapter] is for middleware for other frameworks, and
//     adapter/adaptertest tests it.
//   - [github.com/reqlock/reqlock/idempotency] runs a request with an idempotency key
//     once.
//   - [github.com/reqlock/reqlock/keyfuncs] derives the lock's key from a request.
//   - [github.com/reqlock/reqlock/guard/routes] reads the locks of routes from a file.
//   - [github.com/reqlock/reqlock/wasm] lets WebAssembly plugins decide what to lock.
//   - [github.com/reqlock/reqlock/core] is the lock library underneath. It does not depend on HTTP.
//   - [github.com/reqlock/reqlock/inspect] shows all locks on a page, and cmd/reqlock in a terminal.
//     The modules otelreqlock and promreqlock have metrics and traces.
//   - [github.com/reqlock/reqlock/embedded] runs Redis inside the process, for tests.
package reqlock
