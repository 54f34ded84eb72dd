// Payments is a payment service that takes idempotency keys, with a page to try it in a browser: one button sends the same payment five
// times at once, the other crashes the server process in the middle of a payment. Either way the customer pays once.
//
//	go run ./examples/payments   serves the page until Ctrl-C
//
// It needs nothing but Go. The process that is started holds the address and an embedded Redis, unless REDIS_URL names another; the API runs
// as its child, and is started again when it dies. It runs where a process can inherit a listener: not on Windows.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
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
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see -help", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return supervise(ctx, *addr)
}
