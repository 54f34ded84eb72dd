// Package guest is for reqlock plugins written in Go. A plugin is a main package that passes one
// function to [Handle] when it starts. The function receives each request and decides which locks
// it needs:
//
//	package main
//
//	import "github.com/reqlock/reqlock/wasm/guest"
//
//	func init() { guest.Handle(decide, "X-Tenant") }
//
//	func main() {} // never runs
//
//	func decide(r guest.Request, lock guest.Lock) {
//		lock.AddKey("tenant:" + r.Header("X-Tenant"))
//	}
//
// Build it with the standard Go toolchain. Without c-shared it would exit before its first call:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o plugin.wasm .
//
// The function runs for one request at a time. A host that needs more creates more instances of the
// plugin, each with its own memory. So variables need no locking, but two requests may not see the
// same ones. A panic fails the request with 503 and ends the instance.
//
// The package compiles on every platform. Only GOOS=wasip1 has a host; elsewhere every function
// that needs one panics.
package guest
