package histories

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

var (
	length = flag.Duration("dur", 10*time.Second, "how `long` rounds begin, or traffic lasts; one round on each topology at least")
	output = flag.String("out", "", "`directory` for the plots of the soak, and for histories that break a promise; a temporary one if empty")
	seed   = flag.Uint64("seed", 0, "what the rounds choose by; 0: by the time")
)

// TestMain runs the tests, or serves as a process that a test has started.
func TestMain(m *testing.M) {
	if done, err := serve(); done {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // topologies mostly wait
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	goleak.VerifyTestMain(redistest.Settled(m))
}

// outputDir returns the directory for files that outlive the test.
func outputDir(t testing.TB) string {
	t.Helper()
	dir := *output
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "reqlock-histories-"); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
