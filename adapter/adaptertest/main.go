package adaptertest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

// Main is the TestMain of a package that calls Run, with the same adapters. It runs 16 tests at a
// time, because most of them wait, and fails if a goroutine is left at the end. In a process that
// the suite has started it serves instead. It does not return.
func Main(m *testing.M, adapters ...Adapter) {
	if addr := os.Getenv(redisVariable); addr != "" {
		name := os.Getenv(adapterVariable)
		i := slices.IndexFunc(adapters, func(a Adapter) bool { return a.Name == name })
		if i < 0 {
			fmt.Fprintf(os.Stderr, "reqlock: adaptertest: Main does not know the adapter %q; pass it the adapters that Run gets\n", name)
			os.Exit(2)
		}
		if err := serverProcess(adapters[i], addr, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if !chosen("test.parallel") {
		if err := flag.Set("test.parallel", "16"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	kept := ignored(adapters...)
	goleak.VerifyTestMain(redistest.Settled(m, kept...), kept...)
}

// ignored returns the goroutines that frameworks keep.
func ignored(adapters ...Adapter) (options []goleak.Option) {
	for _, a := range adapters {
		for _, function := range a.Goroutines {
			options = append(options, goleak.IgnoreAnyFunction(function))
		}
	}
	return options
}

// chosen reports whether a flag was given.
func chosen(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name && f.Value.String() != "" })
	return given
}
