// Payments is a payment service with idempotency keys, and a page that shows what they prevent: two
// clicks on Pay, with a crash of the server in between if you like. Each click goes to two routes.
// The route without the middleware charges twice, the route with it once.
//
//	go run ./examples/payments   serves the page until Ctrl-C
//
// It needs only Go. The parent process holds the listener and an embedded Redis, unless REDIS_URL
// is set. The API runs as its child, and is restarted when it crashes. It does not run on Windows,
// where a process cannot inherit a listener.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

func main() {
	run := parent
	if os.Getenv(childVariable) != "" {
		run = child
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "payments: %v\n", err)
		os.Exit(1)
	}
}

// parent serves until Ctrl-C.
func parent() error {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on; port 0 takes any free one")
	if err := demo.Parse("A payment service, and a page that shows what idempotency keys prevent", "go run ./examples/payments"); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return supervise(ctx, *addr)
}
