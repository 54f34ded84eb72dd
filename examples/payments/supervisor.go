package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/reqlock/reqlock/embedded"
)

// childVariable makes the program run the API.
const childVariable = "REQLOCK_PAYMENTS_API"

const (
	graceTime = 15 * time.Second // for the API to exit
	// An API that exits sooner cannot run: one that crashes in a payment has run this long.
	shortLife   = workTime
	shortLives  = 5
	restartTime = 300 * time.Millisecond
)

// supervise keeps an API running until ctx ends. The listener stays open, so that clients that
// connect while there is no API wait for the next.
func supervise(ctx context.Context, addr string) error {
	redis, err := embedded.FromEnv()
	if err != nil {
		return err
	}
	defer redis.Close()
	events := journal{redis.Client()}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w; choose another address with -addr", err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer file.Close()

	fmt.Printf("A payment service: open http://%s/ in a browser.\n\nServing until Ctrl-C.\n", listener.Addr())
	for short := 0; short < shortLives; short++ {
		began := time.Now()
		err := runAPI(ctx, file, redis)
		if ctx.Err() != nil {
			fmt.Println("\nShutting down.")
			return err
		}
		fmt.Printf("The API crashed (%v); starting another one.\n", err)
		events.add(ctx, stepCrashed, "")
		if time.Since(began) > shortLife {
			short = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(restartTime):
		}
	}
	return fmt.Errorf("the API crashes as soon as it starts")
}

// runAPI runs an API until it crashes or ctx ends. The API exits when its standard input ends,
// which also happens when this process is killed.
func runAPI(ctx context.Context, listener *os.File, redis *embedded.Server) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	if redis.Embedded() {
		cmd.Env = append(cmd.Env, "REDIS_URL="+redis.URL())
	}
	cmd.ExtraFiles = []*os.File{listener}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	return end(cmd, input, ended)
}

func end(cmd *exec.Cmd, input io.Closer, ended <-chan error) error {
	_ = input.Close() // fails if the API has just crashed
	select {
	case err := <-ended:
		return err
	case <-time.After(graceTime):
		_ = cmd.Process.Kill()
		return fmt.Errorf("the API had to be killed: %v", <-ended)
	}
}
