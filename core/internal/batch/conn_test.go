package batch

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// A connection that the pool has dialed for later use may have ended before its first use. That says
// nothing of the server, so another connection is tried. One that was just dialed shows that the server
// refuses connections.
func TestConn_EndedBeforeItsFirstUse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age   time.Duration
		stale bool
	}{"just dialed": {0, false}, "dialed for later": {time.Minute, true}} {
		ours, theirs := net.Pipe()
		_, _ = ours.Close(), theirs.Close()
		c := &conn{Conn: ours, all: &conns{}, dialed: int64(clock.Now().Add(-test.age))}
		_, err := c.Write([]byte("hello"))
		if errors.Is(err, ErrStale) != test.stale || IsConnect(err) == test.stale || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v, want one that is stale: %v", name, err, test.stale)
		}
	}
}
