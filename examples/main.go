// Examples runs an example. Before it builds it, it says how long that takes the first time.
//
//	go run ./examples                     runs the quickstart
//	go run ./examples NAME [arguments]    runs another one
//
// It runs "go run ./examples/NAME" in the root of the repository.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
)

// An example is a directory, what it shows, and how long its first build takes on two cores with an
// empty build cache.
type example struct{ name, shows, build string }

var examples = []example{
	{"quickstart", "wait or refuse, on net/http", "40 seconds on two cores"},
	{"nethttp", "a bounded queue", "40 seconds on two cores"},
	{"gin", "a transfer under two keys", "a minute on two cores"},
	{"limit", "three at a time for each tenant", "40 seconds on two cores"},
	{"echo", "shared readers", "40 seconds on two cores"},
	{"payments", "idempotency keys and a crash, on a page for your browser", "a minute on two cores"},
	{"wasm", "a plugin that decides what to lock, and can be replaced while the server runs", "a minute on two cores"},
	{"config", "a table of routes in a file, loaded again when it changes", "a minute on two cores"},
	{"first", "the program of docs/start/first-handler.md", "a minute on two cores"},
}

func main() {
	name, arguments := "quickstart", os.Args[1:]
	if len(arguments) > 0 {
		name, arguments = arguments[0], arguments[1:]
	}
	code, err := run(name, arguments)
	if err != nil {
		fmt.Fprintln(os.Stderr, "examples:", err)
	}
	os.Exit(code)
}

// run runs the example and returns its exit code.
func run(name string, arguments []string) (code int, err error) {
	for _, e := range examples {
		if e.name != name {
			continue
		}
		fmt.Printf("Building examples/%s. The first build takes about %s.\n\n", e.name, e.build)
		cmd := exec.Command("go", append([]string{"run", "./examples/" + e.name}, arguments...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, os.Interrupt) // Ctrl-C reaches the example, which then ends
		err := cmd.Run()
		switch {
		case cmd.ProcessState == nil:
			return 1, err
		case len(interrupted) > 0:
			return 0, nil // go run reports every Ctrl-C as a failure
		default:
			return cmd.ProcessState.ExitCode(), nil
		}
	}
	return 2, fmt.Errorf("there is no example %q; want one of:\n%s", name, list())
}

func list() string {
	var b strings.Builder
	for _, e := range examples {
		fmt.Fprintf(&b, "  %-10s  %s\n", e.name, e.shows)
	}
	return b.String()
}
