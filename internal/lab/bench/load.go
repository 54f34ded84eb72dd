package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A generator requests new orders from a server over 64 persistent connections, and returns the
// requests answered per second.
type generator struct {
	name     string
	generate func(url string, d time.Duration) (float64, error)
}

// newGenerator uses wrk if it is installed, otherwise a second process of this program.
func newGenerator() (generator, error) {
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		return generator{"a Go program of 64 connections, as wrk is not installed", generateInChild}, nil
	}
	return generator{"wrk", func(url string, d time.Duration) (float64, error) { return runWrk(wrk, url, d) }}, nil
}

// wrkScript gives each thread its own orders.
const wrkScript = `
local threads = 0
function setup(thread) thread:set("id", threads); threads = threads + 1 end
local n = 0
function request()
  n = n + 1
  return wrk.format("GET", "/orders/" .. id .. "-" .. n)
end`

var (
	wrkRate   = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	wrkFailed = regexp.MustCompile(`Non-2xx or 3xx responses: \d+|Socket errors: .*`)
)

// runWrk runs wrk. wrk counts whole seconds, so a shorter run is ended by a signal; it prints the
// rate all the same.
func runWrk(wrk, url string, d time.Duration) (float64, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "orders.lua")
	if err := os.WriteFile(script, []byte(wrkScript), 0o600); err != nil {
		return 0, err
	}
	var output bytes.Buffer
	cmd := exec.Command(wrk, "-t", "2", "-c", strconv.Itoa(loadConns), "-d", "60s", "-s", script, url)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	time.Sleep(d)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		return 0, err
	}
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("wrk: %w: %s", err, output.Bytes())
	}
	if failed := wrkFailed.Find(output.Bytes()); failed != nil {
		return 0, fmt.Errorf("wrk: %s", failed)
	}
	match := wrkRate.FindSubmatch(output.Bytes())
	if match == nil {
		return 0, fmt.Errorf("wrk: no rate in %q", output.Bytes())
	}
	return strconv.ParseFloat(string(match[1]), 64)
}

func generateInChild(url string, d time.Duration) (rate float64, err error) {
	c, err := startChild("load", url, d.String())
	if err != nil {
		return 0, err
	}
	return rate, c.wait(&rate)
}

// generate is the child's work: it writes requests and reads answers with as little code as
// possible.
func generate(url string, d time.Duration) (float64, error) {
	addr := strings.TrimPrefix(url, "http://")
	var (
		wg      sync.WaitGroup
		answers atomic.Int64
		errs    = make([]error, loadConns)
		began   = time.Now()
		end     = began.Add(d)
	)
	for i := range loadConns {
		wg.Go(func() { errs[i] = ask(addr, i, end, &answers) })
	}
	wg.Wait()
	return float64(answers.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

// ask sends requests over one connection, at least one.
func ask(addr string, id int, end time.Time, answers *atomic.Int64) error {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(end.Add(10 * time.Second)); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	var request []byte
	for n := 0; n == 0 || time.Now().Before(end); n++ {
		request = fmt.Appendf(request[:0], "GET /orders/%d-%d HTTP/1.1\r\nHost: %s\r\n\r\n", id, n, addr)
		if _, err := conn.Write(request); err != nil {
			return err
		}
		if err := readAnswer(in); err != nil {
			return err
		}
		answers.Add(1)
	}
	return nil
}

// readAnswer reads an answer that has a Content-Length.
func readAnswer(in *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		line = strings.TrimSpace(line)
		switch name, value, _ := strings.Cut(line, ":"); {
		case first && !strings.HasPrefix(line, "HTTP/1.1 200 "):
			return fmt.Errorf("the server answered %q", line)
		case line == "":
			if length < 0 {
				return errors.New("the server answered without a Content-Length")
			}
			_, err := io.CopyN(io.Discard, in, int64(length))
			return err
		case strings.EqualFold(name, "Content-Length"):
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return err
			}
		}
	}
}
