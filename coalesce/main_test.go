package coalesce

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(doomedVariable); addr != "" {
		fmt.Fprintln(os.Stderr, doomed(addr))
		os.Exit(1)
	}
	goleak.VerifyTestMain(redistest.Settled(m))
}

var bg = context.Background()

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// newLocks returns a client of the locks on a server, as another process would have it. It must be
// idle by the end of the test.
func newLocks(t testing.TB, s *redistest.Server) *core.Client {
	t.Helper()
	locks, err := core.New(s.Client(t), core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "the lock client is idle", func() bool { return locks.Stats() == core.Stats{} })
		ctx, cancel := context.WithTimeout(bg, patience)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Errorf("close the lock client: %v", err)
		}
	})
	return locks
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}
