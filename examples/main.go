// Examples runs an example. Before it builds it, it says how long that takes the first time.
//
//	go run ./examples                     runs the quickstart
//	go run ./examples NAME [arguments]    runs another one
//
// It builds and runs ./examples/NAME in the root of the repository.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// An example is a directory, what it shows, and how long its first build takes on two cores with an
// empty build cache.
type example struct{ name, shows, build string }

var examples = []example{
	{"quickstart", "wait or refuse, on net/http", "40 seconds on two cores"},
	{"nethttp", "a bounded queue", "40 seconds on two cores"},
	{"gin", "a transfer under two keys", "a minute on two cores"},
	{"limit", "three at a time for each tenant", "40 seconds on two cores"},
	{"delegation", "three services under one lock", "40 seconds on two cores"},
	{"echo", "shared readers", "40 seconds on two cores"},
	{"payments", "idempotency keys and a crash, on a page for your browser", "a minute on two cores"},
	{"wasm", "a plugin that decides what to lock, and can be replaced while the server runs", "a minute on two cores"},
	{"config", "a table of routes in a file, loaded again when it changes", "a minute on two cores"},
	{"first", "the first program of the docs", "a minute on two cores"},
}

func main() {
	name, arguments := "quickstart", os.Args[1:]
	if len(arguments) > 0 {
		name, arguments = arguments[0], arguments[1:]
	}
	switch strings.TrimLeft(name, "-") {
	case "help", "h":
		fmt.Print(usage())
		return
	}
	code, err := run(name, arguments)
	if err != nil {
		fmt.Fprintln(os.Stderr, "examples:", err)
	}
	os.Exit(code)
}

// run builds the example, runs it and returns its exit code.
func run(name string, arguments []string) (code int, err error) {
	for _, e := range examples {
		if e.name != name {
			continue
		}
		dir, err := os.MkdirTemp("", "example-")
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		fmt.Printf("Building examples/%s. The first build takes about %s.\n\n", e.name, e.build)
		binary := filepath.Join(dir, name+".exe") // Windows wants the suffix
		build := exec.Command("go", "build", "-o", binary, "./examples/"+name)
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			return 1, fmt.Errorf("building %s: %w", name, err)
		}
		return forward(exec.Command(binary, arguments...))
	}
	return 2, fmt.Errorf("there is no example %q\n%s", name, usage())
}

// forward runs a command in place of this process. Ctrl-C reaches both, so only SIGTERM is sent on.
func forward(cmd *exec.Cmd) (code int, err error) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case <-ended:
			return cmd.ProcessState.ExitCode(), nil
		case s := <-signals:
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s) // it may have ended
			}
		}
	}
}

func usage() string {
	var b strings.Builder
	b.WriteString("usage: go run ./examples [NAME [arguments]]; -help after a name shows its flags\n\n")
	for _, e := range examples {
		fmt.Fprintf(&b, "  %-10s  %s\n", e.name, e.shows)
	}
	b.WriteString("\nexamples/caddy and examples/recipes have modules of their own: see examples/recipes/README.md.\n")
	return b.String()
}
