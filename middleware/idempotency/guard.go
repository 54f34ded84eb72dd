package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/reqlock/reqlock/adapter"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/httpreq"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A Guard runs requests once. It is safe for concurrent use and has nothing to close.
type Guard struct {
	locks *core.Client
	cfg   Config
	guard *guard.Guard
	body  func(*http.Request) ([]byte, error)
}

// New returns a guard whose locks and records are those of locks. It refuses a Config that can never
// work; see Config.Validate.
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
	return &Guard{locks: locks, cfg: cfg, guard: inner, body: keyfuncs.Body(keyfuncs.MaxBody(cfg.MaxRequestBody))}, nil
}

// Serve runs next for the first request of a key, and answers all others in its place. w takes the
// answers that are not next's. next gets a copy of r, and the Recorder of its answer: the handler must
// write to Recorder.Wrap of its usual writer. The Recorder is nil if the request has no key to guard.
func (g *Guard) Serve(w http.ResponseWriter, r *http.Request, next func(*http.Request, *Recorder)) {
	if !slices.Contains(g.cfg.Methods, r.Method) {
		next(r, nil)
		return
	}
	a := &attempt{g: g, server: httpreq.Server(r.Context()), outer: attemptFrom(r.Context())}
	own := r.WithContext(context.WithValue(r.Context(), attemptKey{}, a))
	defer adapter.KeepForm(r, own)
	g.guard.Serve(w, own, func(_ http.ResponseWriter, r *http.Request) { a.run(r, next) })
}

// policy decides on the attempt that the request leads to.
func policy(r *http.Request, p *guard.Policy) error {
	return r.Context().Value(attemptKey{}).(*attempt).decide(r, p)
}

// decide names the request, sums it up, and makes its lock.
func (a *attempt) decide(r *http.Request, p *guard.Policy) error {
	cfg := &a.g.cfg
	key, err := cfg.key(r)
	if err != nil {
		return err
	}
	if key == "" {
		p.Skip = true
		return nil
	}
	scope, err := cfg.Scope(r)
	if err != nil {
		return err
	}
	if scope == "" {
		return newError(keyMissing, "The request does not say on whose behalf it is made.", nil)
	}
	a.key, a.name = key, cfg.name(r, scope, key)
	if outer := a.outer; outer != nil && outer.server == a.server && outer.name == a.name {
		a.nested, p.Skip = true, true // the middleware is mounted twice
		return nil
	}
	if err := a.fingerprint(r); err != nil {
		return err
	}
	p.Lock, err = a.lock()
	return err
}

func (a *attempt) fingerprint(r *http.Request) (err error) {
	var body []byte
	if a.g.cfg.Fingerprint.readsBody() {
		if body, err = a.g.body(r); err != nil {
			return err
		}
	}
	a.print = fingerprint(a.g.cfg.Fingerprint, r, body)
	return nil
}

// run runs the handler and releases its key.
func (a *attempt) run(r *http.Request, next func(*http.Request, *Recorder)) {
	if a.lease == nil { // skipped, or failed open
		next(r, nil)
		return
	}
	ctx, passed, end := handlerContext(r.Context(), a.lease.Lease)
	own := r.WithContext(ctx)
	rec := &Recorder{r: r, limit: a.g.cfg.MaxResponseBody, passed: passed}
	completed := false
	defer func() {
		if !completed { // a panic, or runtime.Goexit: the guard releases the lock
			rec.abandon()
		}
		end()
		adapter.KeepForm(r, own)
	}()
	next(own, rec)
	a.finish(r, rec)
	completed = true
}

// finish stores the result, if it is to be stored, in the step that releases the lock. Then it sends
// the answer, so a client that has the answer can repeat the request at once. The client gets the
// answer even if storing fails.
func (a *attempt) finish(r *http.Request, rec *Recorder) {
	whole := rec.complete()
	adapter.SetStatus(r.Context(), rec.status)
	result, failure := a.result(rec, whole)
	err := adapter.ReleaseBy(r.Context(), func(lease *core.Lease) error {
		var err error
		switch {
		case result != nil:
			err = a.lease.ReleaseWith(r.Context(), result, a.ttl())
		case failure != nil && a.marker != nil:
			err = a.lease.ReleaseWith(r.Context(), a.marker, a.g.cfg.TTL) // Release would delete it
		default:
			err = lease.Release(r.Context())
		}
		if failure != nil || result != nil && err != nil {
			return fmt.Errorf("%w: %w", ErrNotStored, errors.Join(failure, err))
		}
		return err
	})
	if errors.Is(err, ErrNotStored) && !errors.Is(err, core.ErrLockLost) {
		a.g.cfg.Logger.Warn("reqlock: idempotency: the result of a run is not stored, but the client got it",
			"method", r.Method, "pattern", r.Pattern, "error", err)
	}
	rec.release()
}

// recordRoom is how much larger than Config.MaxResponseBody a record may be, for its headers and for
// what a Codec adds.
const recordRoom = 64 << 10

// result returns the record of the run as Redis stores it; nil without an error: nothing is stored.
func (a *attempt) result(rec *Recorder, whole bool) ([]byte, error) {
	if !a.stores(rec) {
		return nil, nil
	}
	if whole {
		data, err := a.seal(&record{
			kind: answered, print: a.print,
			status: rec.status, header: recorded(rec.before, rec.header, rec.body, a.g.cfg.Headers), body: rec.body,
		})
		if err != nil || int64(len(data)-recordRoom) <= a.g.cfg.MaxResponseBody {
			return data, err
		}
	}
	return a.seal(&record{kind: unrecorded, print: a.print})
}

// stores reports whether the result is to be stored.
func (a *attempt) stores(rec *Recorder) bool {
	status := rec.status
	if status == 0 {
		status = http.StatusSwitchingProtocols // only a hijacked connection has no status
	}
	header := rec.header.Clone()
	if header == nil {
		header = make(http.Header) // of a hijacked connection
	}
	return !a.noStore.Load() && a.g.cfg.Store(status, header)
}
