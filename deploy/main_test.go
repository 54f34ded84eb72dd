package deploy

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv("REQLOCK_LOAD"); addr != "" { // see requests
		d, err := time.ParseDuration(os.Getenv("REQLOCK_LOAD_FOR"))
		if err == nil {
			err = generate(addr, d)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(redistest.Settled(m))
}
