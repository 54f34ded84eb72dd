// Package wasm lets WebAssembly plugins decide what is locked, and how. A plugin is one file, written in any language, that
// operators replace without rebuilding the service:
//
//	plugin, err := wasm.Open(ctx, "policy.wasm", wasm.Config{Watch: true})
//	...
//	defer plugin.Close(context.Background())
//	lock := httplock.New(locks, httplock.Config{Policy: plugin.Policy})
//
// docs/wasm.md has the ABI, the bounds, and what guests cost; package guest is for plugins in Go, include/reqlock.h for those in C.
//
// # How its parts play together
//
// A Plugin (plugin.go) has one program at a time; a watch (watch.go) may swap it for a new one. A program (program.go) is a compiled
// binary with a runtime of its own, and a list of idle instances. A request becomes a call (call.go): it waits for a slot, of
// which there are as many as calls may run at once, enters the current program, takes an idle instance (instance.go) or makes
// one, and runs handle_request in it. The host functions of httphandler.go show the guest the call's request, those of
// reqlockv1.go note what it decides. What the guest has left becomes the guard's policy when it has returned, or nothing at all.
//
// An instance belongs to the goroutine that took it. It goes back to the idle ones only if its call has returned and its deadline
// (deadline.go) has not passed; otherwise it is closed, since a guest that was stopped half-way keeps what it had half written.
// Deadlines are the plugin's own: the client's context never reaches a guest, so a client that leaves breaks no instance.
//
// A program that was swapped out, or whose plugin is closing, is closed when its last call is over: calls are counted under the
// same mutex that changes which program is the current one.
package wasm
