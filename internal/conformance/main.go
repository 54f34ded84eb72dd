package conformance

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main is TestMain of an adapter. It runs more tests at a time than there are processors, as nearly all that they do is
// wait, and makes sure that no goroutine is left. In a process that the suite has started it is a server instead.
func Main(m *testing.M, a Adapter) {
	if addr := os.Getenv(redisVariable); addr != "" {
		if err := serverProcess(a, addr, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "8"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}
