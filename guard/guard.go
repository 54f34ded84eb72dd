package guard

import (
	"fmt"
	"sync"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/loglimit"
)

// A Guard holds locks around handlers. It is safe for concurrent use and has nothing to close.
type Guard struct {
	locks *core.Client
	cfg   Config
	// warn is for the line about a WaitTime beyond the server's WriteTimeout.
	warn sync.Once
	// holds limits the log lines about MaxHold for each route. lines limits the others that a fault
	// repeats with each request. refusals limits those about refused requests for each lock.
	holds, lines, refusals loglimit.Limit
}

// New returns a guard that takes its locks from locks, which may be nil if Config.Locker makes
// them. It refuses a Config that can never work; see Config.Validate.
func New(locks *core.Client, cfg Config) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if locks == nil && cfg.Locker == nil {
		return nil, fmt.Errorf("%w: there is neither a *core.Client nor a Locker", ErrInvalidConfig)
	}
	if cfg.Delegates != DelegatesNone && cfg.Locker == nil && locks.Service() == "" {
		return nil, fmt.Errorf("%w: Delegates is %s, and the *core.Client verifies no tokens; give it core.Options.Delegation", ErrInvalidConfig, cfg.Delegates)
	}
	return &Guard{locks: locks, cfg: cfg.withDefaults()}, nil
}
