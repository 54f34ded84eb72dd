package coalesce

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/loglimit"
	"github.com/reqlock/reqlock/internal/request"
)

// A Guard lets requests share the answer of one run. It is safe for concurrent use and has nothing to
// close.
type Guard struct {
	locks *core.Client
	cfg   Config
	guard *guard.Guard
	// lines limits the log lines that a fault repeats with each request.
	lines loglimit.Limit
}

// New returns a guard whose locks and records are those of locks. It refuses a Config that can never
// work; see Config.Validate. Handlers get it from an adapter, such as httplock.Coalesce.
func New(locks *core.Client, cfg Config) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if locks == nil {
		return nil, fmt.Errorf("%w: there is no *core.Client", ErrInvalidConfig)
	}
	cfg = cfg.withDefaults()
	inner, err := guard.New(locks, cfg.guard())
	if err != nil {
		return nil, err
	}
	return &Guard{locks: locks, cfg: cfg, guard: inner}, nil
}

// Serve runs next for one of the requests that want the same, and answers the others with its answer.
// w takes those answers. next gets a copy of r, and the Recorder of its answer: the handler must
// write to Recorder.Wrap of its usual writer. The Recorder is nil if the answer is for this request
// alone. It is for adapters.
func (g *Guard) Serve(w http.ResponseWriter, r *http.Request, next func(*http.Request, *Recorder)) {
	hasBody := r.Body != nil && r.Body != http.NoBody
	if !mayShare(r.Method, r.Header, hasBody, g.cfg.Unsafe != "") {
		next(r, nil)
		return
	}
	a := &attempt{g: g, next: next, credentials: hasCredentials(r.Header, g.cfg.Vary, g.cfg.User != nil), outer: attemptFrom(r.Context())}
	own := r.WithContext(context.WithValue(r.Context(), attemptKey{}, a))
	defer request.KeepForm(r, own)
	defer a.leave()
	g.guard.Serve(w, own, func(_ http.ResponseWriter, r *http.Request) { a.run(r) })
}

type attemptKey struct{}

// attemptFrom returns the attempt that leads to a context; nil: none does.
func attemptFrom(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// policy decides on the attempt that the request leads to.
func policy(r *http.Request, p *guard.Policy) (err error) {
	a := attemptFrom(r.Context())
	if decide := a.g.cfg.Policy; decide != nil {
		if err := decide(r, p); err != nil || p.Skip {
			return err
		}
		p.Mode, p.Fenced, p.Limit, p.Lock = guard.ModeExclusive, false, 0, nil
		if len(p.Keys) == 0 || slices.Contains(p.Keys, "") {
			return nil // The inner guard refuses it.
		}
	}
	if a.name, err = a.g.cfg.name(r, a.credentials, p.Keys...); err != nil {
		return err
	}
	p.Keys = nil
	for outer := a.outer; outer != nil; outer = outer.outer {
		if outer.name == a.name {
			p.Skip = true // The run asks for what it makes: it would wait for itself.
		}
	}
	p.Lock = a
	return nil
}
