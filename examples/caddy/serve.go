package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/examples/internal/demo"
)

//go:embed Caddyfile
var caddyfile []byte

//go:embed shop.py
var shop string

// serve starts the shop, and Caddy in front of it on the listener.
func serve(listener net.Listener, redis *embedded.Server) (*demo.Server, error) {
	dir, err := os.MkdirTemp("", "caddy-")
	if err != nil {
		return nil, err
	}
	backend, address, err := startShop()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	url := os.Getenv("REDIS_URL")
	if redis.Embedded() {
		url = redis.URL()
	}
	caddy, err := startCaddy(listener, dir, "REDIS_URL="+url, "SHOP="+address)
	if err != nil {
		return nil, errors.Join(err, backend.stop(), os.RemoveAll(dir))
	}
	return &demo.Server{Failed: caddy.ended, Stop: func(ctx context.Context) error {
		return errors.Join(caddy.shutdown(ctx), backend.stop(), os.RemoveAll(dir))
	}}, nil
}

// A child is a process that ends with this one.
type child struct {
	cmd    *exec.Cmd
	life   io.Closer // its standard input
	errors bytes.Buffer
	ended  chan error // receives once
}

func start(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, ended: make(chan error, 1)}
	cmd.Stderr = &c.errors
	var err error
	if c.life, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return c, cmd.Start()
}

// wait waits for the end of the process. Its output must have been read.
func (c *child) wait() {
	err := c.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", filepath.Base(c.cmd.Path), err, bytes.TrimSpace(c.errors.Bytes()))
	}
	c.ended <- err
}

// stop ends the process by closing its standard input.
func (c *child) stop() error {
	_ = c.life.Close()
	return <-c.ended
}

// shutdown asks the process to finish. It kills it when ctx ends.
func (c *child) shutdown(ctx context.Context) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-c.ended:
		return err
	case <-ctx.Done():
		_ = c.cmd.Process.Kill()
		return errors.Join(ctx.Err(), <-c.ended)
	}
}

// startShop returns the shop's address, too.
func startShop() (c *child, address string, err error) {
	cmd := exec.Command("python3", "-c", shop)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if c, err = start(cmd); err != nil {
		return nil, "", fmt.Errorf("the shop is written in Python: %w; install python3", err)
	}
	lines := bufio.NewScanner(stdout)
	started := lines.Scan() // it prints nothing else
	go c.wait()
	if !started {
		return nil, "", fmt.Errorf("the shop did not start: %w", errors.Join(lines.Err(), c.stop()))
	}
	return c, "127.0.0.1:" + lines.Text(), nil
}

// startCaddy starts this program as Caddy. Requests that come before it serves wait in the
// listener, which it gets as file descriptor 3.
func startCaddy(listener net.Listener, dir string, env ...string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	config := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(config, caddyfile, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "run", "--config", config)
	cmd.Env = append(append(os.Environ(), asCaddy+"=1", "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir), env...)
	cmd.ExtraFiles = []*os.File{file}
	c, err := start(cmd)
	if err != nil {
		return nil, fmt.Errorf("starting Caddy: %w", err)
	}
	go c.wait()
	return c, nil
}
