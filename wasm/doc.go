// Package wasm lets WebAssembly plugins decide what to lock and how. A plugin is one file, written
// in any language, that operators can replace without rebuilding the service:
//
//	plugin, err := wasm.Open(ctx, "policy.wasm", wasm.Config{Watch: true})
//	...
//	defer plugin.Close(context.Background())
//	lock := httplock.New(locks, httplock.Config{Policy: plugin.Policy})
//
// docs/wasm.md is the guide, with limits, threats and costs; docs/wasm-abi.md describes the ABI.
// Package guest is for plugins in Go, include/reqlock2.h for C, guest-rust for Rust and guest-as for
// AssemblyScript.
//
// # Architecture
//
// A Plugin (plugin.go) runs one program at a time. A watch (watch.go) may swap it for a new
// version. A program (program.go) is a compiled binary with its own runtime and a list of idle
// instances. A request becomes a call (call.go). It waits for one of MaxInstances slots, enters the
// current program, takes an idle instance (instance.go) or creates one, and runs handle_request in
// it. A guest of ABI version 2 finds the request in its memory (snapshot.go), and leaves its decision
// there (record.go). For one of version 1, the host functions in httphandler.go show the request,
// and those in reqlockv1.go record the decision. It becomes the guard's policy when the guest returns
// without an error.
//
// Calls wait for a slot in a bounded queue (queue.go). A breaker (breaker.go) suspends a program that
// keeps failing. All instances share one key-value memory (shared.go). Stats and Observer (stats.go,
// observer.go) show what happens.
//
// An instance belongs to the goroutine that took it. It becomes idle again only if its call
// returned before its deadline (deadline.go). Otherwise it is closed, because a guest that was
// stopped midway may have left its memory half written. Deadlines do not depend on the client's
// context, so a client that disconnects breaks no instance.
//
// Compiled code cannot be interrupted. So package internal/meter rewrites each module before it is
// compiled: the guest counts its work down and calls the deadline about every 10 µs.
//
// A program that was swapped out, or whose plugin is closing, is closed after its last call. The
// mutex that guards the current program also guards the count of its calls.
package wasm
