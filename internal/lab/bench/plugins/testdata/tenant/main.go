// The cheapest useful guest in Go: its only key is the header X-Tenant.
package main

import "github.com/reqlock/reqlock/wasm/guest"

func main() {}

func init() {
	guest.Handle(func(r guest.Request, lock guest.Lock) { lock.AddKey(r.Header("X-Tenant")) }, "X-Tenant")
}
