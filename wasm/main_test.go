package wasm

import (
	"fmt"
	"os"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

// compiled is a CacheDir for all tests: compiling the guest in Go takes seconds under the race
// detector.
var compiled string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "reqlock-wasm-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	compiled = dir
	goleak.VerifyTestMain(redistest.Settled(m), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
