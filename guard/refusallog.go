package guard

import (
	"context"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/loglimit"
	"github.com/reqlock/reqlock/internal/request"
)

// refusedFor is how long requests have been refused when that is news. A request that comes twice is
// none. Tests change it before they run.
var refusedFor = loglimit.Interval

// logRefusal logs that requests have been refused for a minute, and then once a minute, for each lock
// that is held, or for each route if Redis is why.
func (x *exchange) logRefusal(e *Error) {
	if x.asked == nil {
		return
	}
	short := strings.TrimPrefix(e.Type, "urn:reqlock:problem:")
	line := []any{"problem", short, "status", e.Status, "method", request.Method(x.r), "pattern", x.r.Pattern}
	switch e.Type {
	case ProblemLocked, ProblemWaitTimeout, ProblemLimit, ProblemQueueFull:
		n, began, ok := x.g.refusals.Series(x.asked.Name(), refusedFor)
		if !ok {
			return
		}
		line = append([]any{"lock", core.LogNameOf(x.asked), "requests", n, "since", began.Round(time.Millisecond)}, line...)
		x.g.cfg.Logger.Warn("reqlock: requests are refused because the lock is held", append(line, x.heldBy()...)...)
	case ProblemBackendUnavailable:
		n, began, ok := x.g.refusals.Series(e.Type+" "+x.r.Pattern, refusedFor)
		if !ok {
			return
		}
		line = append(line, "requests", n, "since", began.Round(time.Millisecond), "error", e.Err)
		x.g.cfg.Logger.Warn("reqlock: requests are refused because Redis does not give locks", append(line, "change", "run reqlock doctor")...)
	}
}

const (
	// mostHolders is how many holders a line names.
	mostHolders = 3
	// patienceForHolders bounds how long a refused request waits for its line.
	patienceForHolders = time.Second
)

// heldBy says who holds the lock, and for how long if that is known here.
func (x *exchange) heldBy() []any {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), patienceForHolders)
	defer cancel()
	holders, err := core.HoldersOf(ctx, x.asked)
	switch {
	case err != nil:
		return []any{"holder", "unknown: " + err.Error()}
	case len(holders) == 0:
		return []any{"holder", "none by now"}
	}
	var owners []string
	var longest time.Duration
	for i, h := range holders {
		if longest = max(longest, h.Held); i < mostHolders {
			owners = append(owners, h.Owner)
		}
	}
	line := []any{"holder", strings.Join(owners, " ")}
	if len(holders) > mostHolders {
		line = append(line, "more_holders", len(holders)-mostHolders)
	}
	if longest > 0 {
		line = append(line, "held", longest.Round(time.Millisecond))
	}
	return line
}
