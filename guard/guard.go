package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/loglimit"
	"github.com/reqlock/reqlock/internal/request"
)

// A Guard holds locks around handlers. It is safe for concurrent use and has nothing to close.
type Guard struct {
	locks *core.Client
	cfg   Config
	// warn is for the line about a WaitTime beyond the server's WriteTimeout.
	warn sync.Once
	// holds limits the log lines about MaxHold for each route. lines limits the others that a fault
	// repeats with each request.
	holds, lines loglimit.Limit
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
	return &Guard{locks: locks, cfg: cfg.withDefaults()}, nil
}

// Serve runs next under the lock of the request, or answers in its place. next gets w as it is, and
// a copy of r whose context ends when a lock is lost, when MaxHold is over, and when next returns.
func (g *Guard) Serve(w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request)) {
	if g.cfg.PassPreflight && isPreflight(r) {
		next(w, r)
		return
	}
	x := &exchange{g: g, w: w, r: r, original: r}
	defer x.bodies.Close()
	policy, err := x.policy()
	if err == nil && policy.Skip {
		next(w, r)
		return
	}
	var entered time.Time
	if err == nil {
		entered, err = x.enter(policy)
	}
	if err != nil && !x.outcome.FailedOpen {
		x.answer(err)
		return
	}
	x.run(next, entered)
}

// isPreflight reports whether r is a CORS preflight.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

func (g *Guard) bodyError(r *http.Request, err error) error {
	var tooLarge *http.MaxBytesError
	end := r.Context().Err()
	switch {
	case errors.Is(err, request.ErrBodyTooLarge):
		return g.refusal(ProblemBodyTooLarge, err)
	case errors.Is(err, request.ErrBusy):
		return g.refusal(ProblemBusy, err)
	case errors.Is(end, context.Canceled):
		return g.refusal(ProblemClientGone, err)
	case errors.As(err, &tooLarge):
		return g.refusal(ProblemBodyTooLarge, err)
	case end != nil: // a deadline, whose client waits for the answer
		return g.refusal(ProblemBackendUnavailable, err)
	default:
		return g.refusal(ProblemBodyUnreadable, err)
	}
}

// checkWriteTimeout warns once if the server may cut the connection before the answer.
func (g *Guard) checkWriteTimeout(srv *http.Server, wait time.Duration) {
	if srv == nil || srv.WriteTimeout <= 0 || wait < srv.WriteTimeout {
		return
	}
	g.warn.Do(func() {
		g.cfg.Logger.Warn("reqlock: WaitTime exceeds the server's WriteTimeout: the server cuts the connection of a client that waits so long",
			"WaitTime", wait, "WriteTimeout", srv.WriteTimeout)
	})
}
