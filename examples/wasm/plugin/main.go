// Plugin decides what examples/wasm locks: each tenant's lists, shared by readers and exclusive for
// writers. It is not part of the service. Edit and build it, and the running service loads the new
// version within two seconds:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o examples/wasm/plugin.wasm ./examples/wasm/plugin
package main

import (
	"net/url"
	"strings"
	"time"

	"github.com/reqlock/reqlock/wasm/guest"
)

func init() { guest.Handle(decide, guest.PartMethod, guest.PartURI) }

func main() {} // never runs

func decide(r guest.Request, lock guest.Lock) {
	tenant, list, _ := strings.Cut(strings.TrimPrefix(r.Path(), "/"), "/")
	lock.AddKey(canonical(tenant) + "/" + canonical(list))
	lock.SetWait(5 * time.Second)
	if r.Method() == "GET" {
		lock.SetMode(guest.ModeRead)
	} else {
		lock.SetMode(guest.ModeWrite)
	}
}

// canonical gives one spelling to segments that the router treats as equal: acme and %61cme.
func canonical(segment string) string {
	decoded, err := url.PathUnescape(segment)
	if err != nil {
		return segment // no router matches it
	}
	return url.PathEscape(decoded)
}
