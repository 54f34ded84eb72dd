package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// patience is how long an interrupted command may take to clean up: a command that Redis does not
// answer cannot be interrupted.
const patience = time.Second

func main() {
	a := newApp()
	ctx, stop := signal.NotifyContext(context.Background(), heeded()...)
	done := make(chan int, 1)
	go func() { done <- a.main(ctx, os.Args[1:]) }()
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
	}
	if a.tends.Load() {
		os.Exit(<-done)
	}
	os.Exit(interrupted)
}

// heeded are the signals that end a command, except those that the caller, such as nohup, has told
// this process to ignore: the commands that run starts ignore them, too.
func heeded() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
}
