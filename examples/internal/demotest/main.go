package demotest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

// name is the name of the program and its directory. binary is its path.
var name, binary string

// Main builds the program in the working directory with optional flags, runs the tests, and checks
// for leaked goroutines.
func Main(m *testing.M, flags ...string) {
	dir, err := os.MkdirTemp("", "example-")
	if err == nil {
		err = build(dir, flags)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the example:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(redistest.Settled(m), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// build builds the binary, with the race detector if this test has it and flags do not disable it.
func build(dir string, flags []string) error {
	source, err := os.Getwd()
	if err != nil {
		return err
	}
	name = filepath.Base(source)
	binary = filepath.Join(dir, name)
	args := []string{"build", "-buildvcs=false", "-o", binary}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", slices.Concat(args, flags, []string{"."})...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
