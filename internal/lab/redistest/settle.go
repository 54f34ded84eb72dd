package redistest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Settled returns a test run for goleak.VerifyTestMain that waits for the goroutines of closed
// Redis clients. Those that check for a dead server sleep for a second at a time before they notice
// that their client is closed. Goroutines that do not end are leaks, unless an option says otherwise.
func Settled(m *testing.M, opts ...goleak.Option) goleak.TestingM { return settled{m, opts} }

type settled struct {
	m    *testing.M
	opts []goleak.Option
}

func (s settled) Run() int {
	code := s.m.Run()
	for deadline := time.Now().Add(5 * time.Second); code == 0 && goleak.Find(s.opts...) != nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	return code
}
