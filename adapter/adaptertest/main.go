package adaptertest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// Main is TestMain of those who run the suite. It runs more tests at a time than there are processors, as nearly all that they do is
// wait, and makes sure that no goroutine is left. In a process that the suite has started it is a server instead.
func Main(m *testing.M, adapters ...Adapter) {
	if addr := os.Getenv(redisVariable); addr != "" {
		i := slices.IndexFunc(adapters, func(a Adapter) bool { return a.Name == os.Getenv(adapterVariable) })
		if err := serverProcess(adapters[i], addr, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if !chosen("test.parallel") {
		if err := flag.Set("test.parallel", "8"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}

// chosen says whether a flag was given.
func chosen(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name && f.Value.String() != "" })
	return given
}
