//go:build interop

package redisson

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// jar is the program of the JVM side.
var jar string

func TestMain(m *testing.M) { goleak.VerifyTestMain(withPeers{m}) }

// withPeers runs the tests with every topology up, and prints the matrix when all are down again.
type withPeers struct{ *testing.M }

func (w withPeers) Run() int {
	code, err := w.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Print(results.String())
	return code
}

func (w withPeers) run() (code int, err error) {
	if jar, err = buildPeer(); err != nil {
		return 0, err
	}
	for _, topo := range topologies {
		if err := topo.start(context.Background()); err != nil {
			return 0, fmt.Errorf("%s: %w", topo.name, err)
		}
		defer func() { err = errors.Join(err, topo.close()) }()
	}
	return w.M.Run(), nil
}
