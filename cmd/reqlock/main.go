package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// patience is how long an interrupted command may take to clean up: a command that Redis does not
// answer cannot be interrupted.
const patience = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	done := make(chan int, 1)
	go func() { done <- newApp().main(ctx, os.Args[1:]) }()
	select {
	case code := <-done:
		os.Exit(code)
	case <-ctx.Done():
	}
	stop() // a second Ctrl-C ends the process at once
	select {
	case code := <-done:
		os.Exit(code)
	case <-time.After(patience):
		os.Exit(interrupted)
	}
}
