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

// childVariable has the program be the API.
const childVariable = "REQLOCK_PAYMENTS_API"

const (
	graceTime   = 15 * time.Second // for the API to end by itself
	shortLife   = workTime         // of an API that cannot run: one that crashes in a payment has worked for so long
	shortLives  = 5
	restartTime = 300 * time.Millisecond
)

// supervise has an API run until ctx ends. The listener stays open all the while: who connects while there is no API waits
// for the next one.
func supervise(ctx context.Context, addr string) error {
	redis, err := embedded.FromEnv()
	if err != nil {
		return err
	}
	defer redis.Close()
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
		fmt.Printf("The API has died (%v); another one is started.\n", err)
		if time.Since(began) > shortLife {
			short = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(restartTime):
		}
	}
	return fmt.Errorf("the API dies as soon as it is started")
}

// runAPI runs one until it dies, or until ctx ends. It ends when its standard input does, and so also when this process is
// killed.
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
	_ = input.Close() // it may have died just now
	select {
	case err := <-ended:
		return err
	case <-time.After(graceTime):
		_ = cmd.Process.Kill()
		return fmt.Errorf("the API had to be killed: %v", <-ended)
	}
}
