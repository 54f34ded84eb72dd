// Package wasm lets WebAssembly plugins decide what to lock and how. A plugin is one file, written
// in any language, that operators can replace without rebuilding the service:
//
//	plugin, err := wasm.Open(ctx, "policy.wasm", wasm.Config{Watch: true})
//	...
//	defer plugin.Close(context.Background())
//	lock := httplock.New(locks, httplock.Config{Policy: plugin.Policy})
//
// docs/guides/wasm.md is the guide, LANGUAGES.md has one policy in four languages, HOST.md limits,
// threats and costs, and ABI.md the ABI. README.md has the way through the files.
//
// Package guest is for plugins in Go, include/reqlock2.h for C, guest-rust for Rust and guest-as
// for AssemblyScript.
package wasm
