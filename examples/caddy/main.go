// Caddy is a shop in Python whose orders are paid and shipped by one request at a time, because
// Caddy in front of it holds a lock meanwhile. All that reqlock needs is in the Caddyfile.
//
//	go run -C examples/caddy .         shows colliding requests, then serves until Ctrl-C
//	go run -C examples/caddy . -once   exits after the demonstration
//
// It needs Go and python3: Redis runs inside the process unless REDIS_URL is set.
package main

import (
	"context"
	"io"
	"os"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/reqlock/reqlock/caddy"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// waitTime is that of the Caddyfile.
const waitTime = 5 * time.Second

// asCaddy is set in the process that is Caddy. It is this program, so that nothing else has to be
// installed.
const asCaddy = "REQLOCK_EXAMPLE_AS_CADDY"

func main() {
	if os.Getenv(asCaddy) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // ends with the program that started this one
			os.Exit(1)
		}()
		caddycmd.Main()
		return
	}
	demo.Main(demo.Program{
		Name:        "caddy",
		What:        "A shop in Python behind Caddy",
		Serve:       serve,
		Demonstrate: func(ctx context.Context, base string) error { return demo.Orders(ctx, base, waitTime) },
		Invite:      demo.OrdersByHand,
		Run:         "go run -C examples/caddy .",
	})
}
