package idempotency

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/loglimit"
	"github.com/reqlock/reqlock/internal/request"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A Guard runs requests once. It is safe for concurrent use and has nothing to close.
type Guard struct {
	locks *core.Client
	cfg   Config
	guard *guard.Guard
	// lines limits the log lines that a fault repeats with each request, and drops those of
	// WarnDropped for each route.
	lines, drops loglimit.Limit
	// order is for the line of warnOrder.
	order sync.Once
	body  func(*http.Request) ([]byte, error)
	// largeBody reads one over MaxRequestBody, within the budget of the process for bodies.
	largeBody func(*http.Request) ([]byte, error)
	sent      answers
}

// New returns a guard whose locks and records are those of locks, or of Config.Locks. It refuses a
// Config that can never work; see Config.Validate.
func New(locks *core.Client, cfg Config) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Locks != nil {
		locks = cfg.Locks
	}
	if locks == nil {
		return nil, fmt.Errorf("%w: there is no *core.Client", ErrInvalidConfig)
	}
	cfg = cfg.withDefaults()
	inner, err := guard.New(locks, cfg.guard())
	if err != nil {
		return nil, err
	}
	return &Guard{
		locks: locks, cfg: cfg, guard: inner, body: keyfuncs.Body(keyfuncs.MaxBody(cfg.MaxRequestBody)),
		largeBody: keyfuncs.Body(keyfuncs.MaxBody(math.MaxInt64 - 1)),
		sent:      answers{sealed: cfg.Codec != nil},
		lines:     loglimit.Limit{Burst: 10}, // each may be about another record
	}, nil
}

// Serve runs next for the first request of a key, and answers all others in its place. w takes the
// answers that are not next's. next gets a copy of r, and the Recorder of its answer: the handler
// must write to Recorder.Wrap of its usual writer. The Recorder is nil if the request has no key to
// guard.
func (g *Guard) Serve(w http.ResponseWriter, r *http.Request, next func(*http.Request, *Recorder)) {
	if !slices.Contains(g.cfg.Methods, r.Method) {
		next(r, nil)
		return
	}
	a := &attempt{g: g, server: request.Server(r.Context()), outer: attemptFrom(r.Context())}
	own := r.WithContext(&attemptContext{r.Context(), a})
	defer request.KeepForm(r, own)
	defer a.dropAnswer()
	g.guard.Serve(w, own, func(_ http.ResponseWriter, r *http.Request) { a.run(r, next) })
}

// WarnDropped logs that the client does not get all of an answer, and what to change. A route is
// logged once a minute. It is for adapters whose framework can send another answer in between.
func (g *Guard) WarnDropped(r *http.Request, change string) {
	if g.drops.Allow(request.Method(r) + " " + r.Pattern) {
		g.cfg.Logger.Warn("reqlock: idempotency: the client does not get all that a handler has written",
			"method", request.Method(r), "pattern", r.Pattern, "change", change)
	}
}

// warnOrder logs once that a lock is outside which belongs inside. It cannot know that before the
// first request, and refuses nothing: the lock may be meant for more than this route.
func (g *Guard) warnOrder(r *http.Request) {
	g.order.Do(func() {
		g.cfg.Logger.Warn("reqlock: idempotency: a lock is around the idempotency guard, so replays wait for it; mount idempotency outside the lock",
			"method", request.Method(r), "pattern", r.Pattern)
	})
}

// policy decides on the attempt that the request leads to.
func policy(r *http.Request, p *guard.Policy) error {
	return r.Context().Value(attemptKey{}).(*attempt).decide(r, p)
}
