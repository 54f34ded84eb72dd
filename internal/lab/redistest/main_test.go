package redistest

import (
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// parentVariable turns this test binary into a parent that starts a server, prints its pid and
// port, and waits.
const parentVariable = "REDISTEST_PARENT"

func beParent() {
	s, err := Run()
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Pid(), s.claim.port, s.dir)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		beParent()
		return
	}
	goleak.VerifyTestMain(Settled(m))
}
