package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A Guard runs requests once. It is safe for concurrent use and has nothing to close.
type Guard struct {
	locks *core.Client
	cfg   Config
	guard *guard.Guard
	body  func(*http.Request) ([]byte, error)
}

// New returns a guard that keeps locks and records by a client. It refuses a Config that can never work; see
// Config.Validate.
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

// Serve runs next for the first request of a key, and answers in its place whatever else comes. w takes the answers that are not
// next's. next gets a copy of r, and the Recorder of its answer: the handler has to write to Recorder.Wrap of the writer that it
// would write to otherwise. Without a key to guard, the Recorder is nil.
func (g *Guard) Serve(w http.ResponseWriter, r *http.Request, next func(*http.Request, *Recorder)) {
	if !slices.Contains(g.cfg.Methods, r.Method) {
		next(r, nil)
		return
	}
	v := &visit{g: g, server: server(r.Context()), outer: visitFrom(r.Context())}
	own := r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	defer guard.KeepForm(r, own)
	g.guard.Serve(w, own, func(_ http.ResponseWriter, r *http.Request) { v.run(r, next) })
}

// policy names the request and sums it up.
func (v *visit) policy(r *http.Request, p *guard.Policy) error {
	cfg := &v.g.cfg
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
	v.key, v.name = key, cfg.name(r, scope, key)
	if outer := v.outer; outer != nil && outer.server == v.server && outer.name == v.name {
		v.inside, p.Skip = true, true // the middleware is there twice
		return nil
	}
	p.Keys = []string{v.name}
	return v.fingerprint(r)
}

func (v *visit) fingerprint(r *http.Request) (err error) {
	var body []byte
	if v.g.cfg.Fingerprint.readsBody() {
		if body, err = v.g.body(r); err != nil {
			return err
		}
	}
	v.print = fingerprint(v.g.cfg.Fingerprint, r, body)
	return nil
}

// run runs the handler, and lets go of its key.
func (v *visit) run(r *http.Request, next func(*http.Request, *Recorder)) {
	if v.lease == nil { // skipped, or failed open
		next(r, nil)
		return
	}
	ctx, passed, end := handlerContext(r.Context(), v.lease.Lease)
	own := r.WithContext(ctx)
	rec := &Recorder{r: r, limit: v.g.cfg.MaxResponseBody, passed: passed}
	completed := false
	defer func() {
		if !completed { // a panic, or the end of the goroutine: the guard releases the lock
			rec.abandon()
		}
		end()
		guard.KeepForm(r, own)
	}()
	next(own, rec)
	v.finish(r, rec)
	completed = true
}

// finish stores the result, if it is to be stored, in releasing the lock, and then sends the answer: the client that has it
// can ask again at once. What becomes of the storing is nothing to the client.
func (v *visit) finish(r *http.Request, rec *Recorder) {
	whole := rec.complete()
	guard.SetStatus(r.Context(), rec.status)
	result, failure := v.result(rec, whole)
	err := guard.ReleaseBy(r.Context(), func(lease *core.Lease) error {
		var err error
		switch {
		case result != nil:
			err = v.lease.ReleaseWith(r.Context(), result, v.ttl())
		case failure != nil && v.marker != nil:
			err = v.lease.ReleaseWith(r.Context(), v.marker, v.g.cfg.TTL) // Release would take it away
		default:
			err = lease.Release(r.Context())
		}
		if failure != nil || result != nil && err != nil {
			return fmt.Errorf("%w: %w", ErrNotStored, errors.Join(failure, err))
		}
		return err
	})
	if errors.Is(err, ErrNotStored) && !errors.Is(err, core.ErrLockLost) {
		v.g.cfg.Logger.Warn("reqlock: idempotency: the result of a run is not stored, the client got it all the same",
			"method", r.Method, "pattern", r.Pattern, "error", err)
	}
	rec.release()
}

// recordRoom is how much larger than Config.MaxResponseBody a record may be, for its headers and for what a Codec adds.
const recordRoom = 64 << 10

// result is the record of the run as it goes to Redis; nil without an error: there is to be none.
func (v *visit) result(rec *Recorder, whole bool) ([]byte, error) {
	if !v.stores(rec) {
		return nil, nil
	}
	if whole {
		data, err := v.seal(&record{
			kind: answered, print: v.print,
			status: rec.status, header: recorded(rec.before, rec.header, rec.body, v.g.cfg.Headers), body: rec.body,
		})
		if err != nil || int64(len(data)-recordRoom) <= v.g.cfg.MaxResponseBody {
			return data, err
		}
	}
	return v.seal(&record{kind: unrecorded, print: v.print})
}

// stores reports whether the result is to be stored.
func (v *visit) stores(rec *Recorder) bool {
	status := rec.status
	if status == 0 {
		status = http.StatusSwitchingProtocols // nothing else goes without a status
	}
	header := rec.header.Clone()
	if header == nil {
		header = make(http.Header) // of a hijacked connection
	}
	return !v.noStore.Load() && v.g.cfg.Store(status, header)
}
