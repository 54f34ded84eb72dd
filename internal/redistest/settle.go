package redistest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Settled is a test run for goleak.VerifyTestMain that ends when the goroutines of closed Redis clients have: those that look
// whether a dead server is back sleep for a second at a time, and see only then that their client is closed. What does not
// end is a leak.
func Settled(m *testing.M) goleak.TestingM { return settled{m} }

type settled struct{ m *testing.M }

func (s settled) Run() int {
	code := s.m.Run()
	for deadline := time.Now().Add(5 * time.Second); code == 0 && goleak.Find() != nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	return code
}
