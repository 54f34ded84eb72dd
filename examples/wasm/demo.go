package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// demonstrate sends a writer, two readers and another writer for one list, and a writer for another
// tenant's list.
func demonstrate(ctx context.Context, base string) error {
	fmt.Print("\n/{tenant}/{list}: the plugin locks each tenant's list, for readers (GET) together, for writers (POST) alone\n")
	var requests []*demo.Request
	for i, r := range []struct{ method, path string }{
		{"POST", "/acme/stock"}, {"GET", "/acme/stock"}, {"GET", "/acme/stock"}, {"POST", "/globex/stock"}, {"POST", "/acme/prices"},
	} {
		requests = append(requests, &demo.Request{
			Name:  string(rune('A' + i)),
			What:  r.method + " " + r.path,
			Path:  r.path,
			GET:   r.method == "GET",
			After: time.Duration(i) * 50 * time.Millisecond,
		})
	}
	if err := demo.Collide(ctx, base, requests); err != nil {
		return err
	}
	demo.Show(requests)
	fmt.Printf("\n%s\n", demo.Legend)
	return nil
}

// invitation returns the commands to try by hand.
func invitation(base string) string {
	post := "curl -i -X POST " + base + "/acme/stock"
	return post + " & " + post + `; wait

Another policy, without a restart: edit examples/wasm/plugin/main.go, and build it:

  GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o examples/wasm/plugin.wasm ./examples/wasm/plugin`
}
