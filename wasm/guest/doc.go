// Package guest is for plugins of reqlock that are written in Go. A plugin is a main package that hands one function to [Handle]
// when it starts; the function sees each request, and says which locks it needs:
//
//	package main
//
//	import "github.com/reqlock/reqlock/wasm/guest"
//
//	func init() { guest.Handle(decide) }
//
//	func main() {} // never runs
//
//	func decide(r guest.Request, lock guest.Lock) {
//		lock.AddKey("tenant:" + r.Header("X-Tenant"))
//	}
//
// Build it with Go's own compiler; without c-shared it would end before it is asked:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o plugin.wasm .
//
// The function is called for one request at a time; a host that needs more makes more instances of the plugin, each with memory
// of its own. So variables are safe to use, and no two requests are sure to see the same ones. A panic fails the request with
// 503 and ends the instance.
//
// The package can be compiled, vetted and documented everywhere. Only GOOS=wasip1 has a host to talk to: elsewhere
// everything that would ask it panics.
package guest
