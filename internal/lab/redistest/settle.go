package redistest

import (
	"time"

	"go.uber.org/goleak"
)

// Settled returns a test run for goleak.VerifyTestMain that waits for the goroutines of closed
// Redis clients. Goroutines that do not end are leaks, unless an option says otherwise.
func Settled(m goleak.TestingM, opts ...goleak.Option) goleak.TestingM { return settled{m, opts} }

type settled struct {
	m    goleak.TestingM
	opts []goleak.Option
}

func (s settled) Run() int {
	code := s.m.Run()
	if code == 0 {
		_ = Leaks(s.opts...) // VerifyTestMain reports them
	}
	return code
}

// Leaks returns an error if goroutines are left. It gives those of closed Redis clients time to end:
// a pool that looks for a dead server sleeps for a second before it notices that it is closed.
func Leaks(opts ...goleak.Option) error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := goleak.Find(opts...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
