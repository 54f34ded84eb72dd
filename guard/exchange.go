package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/request"
	"github.com/reqlock/reqlock/keyfuncs"
)

// An exchange is one request in one guard. This file has its way: policy decides what to lock, enter
// acquires it, and run runs the handler and releases it; or answer answers in its place.
type exchange struct {
	g *Guard
	w http.ResponseWriter
	r *http.Request
	// Serve was called with original. Its context and route are in ctx.
	original *http.Request
	ctx      routedContext
	// outer belongs to the guard around this one. nil: this is the outermost.
	outer   *section
	section section
	// bodies counts what this guard reads of the body.
	bodies request.Account
	// reply is the error of the lock, if it answers the request itself.
	reply   http.Handler
	outcome Outcome
	// cancel ends the handler's context. nil: unbinding the lease does.
	cancel context.CancelCauseFunc

	// Most requests need one key, one lock of that name, and one request for the handler. They are
	// here so that none is allocated separately.
	key     [1]string
	lock    core.Lock
	handled http.Request
	// asked is the lock that the request asked for. nil: it has not come so far.
	asked core.Locker
}

// A boundContext is the context of core.Lease.Bind. Its Unbind is the function that Bind returns as
// well, which would be one more allocation.
type boundContext interface {
	context.Context
	Unbind()
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

// policy decides how the request is guarded.
func (x *exchange) policy() (p Policy, refused error) {
	g, r := x.g, x.r
	p = Policy{Mode: g.cfg.Mode, Fenced: g.cfg.Fenced, Limit: g.cfg.Limit, WaitTime: g.cfg.WaitTime, LeaseTime: g.cfg.LeaseTime}
	var err error
	body := untracked
	if r.Body != nil && r.Body != http.NoBody {
		body = trackBody(r, &x.bodies)
		// Even after a panic: net/http needs its own body to answer a client that waits for 100
		// Continue.
		defer body.restore(r)
	}
	if g.cfg.Policy != nil {
		decided := p // p itself stays off the heap
		err = g.cfg.Policy(r, &decided)
		p = decided
		p.Keys = slices.Clone(p.Keys)
	} else {
		p.Keys, err = keys(r, g.cfg.Keys, x.key[:0])
	}
	switch {
	case errors.Is(err, keyfuncs.ErrSkip):
		return Policy{Skip: true}, nil
	case err != nil:
		return p, g.keyError(r, err, body.failure)
	case p.Skip:
		return p, nil
	case g.cfg.Policy != nil: // New has checked a Config without one
		if err := g.checkPolicy(p); err != nil {
			return p, err
		}
	}
	if slices.Contains(p.Keys, "") {
		return p, g.refusal(ProblemKeyMissing, keyfuncs.ErrMissing)
	}
	return p, nil
}

// keys appends the keys of the request to none.
func keys(r *http.Request, funcs []keyfuncs.Func, none []string) ([]string, error) {
	keys := none
	for _, f := range funcs {
		key, err := f(r)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// enter acquires the locks of the request, all or none. entered is when the wait for them was over.
func (x *exchange) enter(p Policy) (entered time.Time, refused error) {
	g := x.g
	x.outer = x.section.begin(x.r)
	g.checkWriteTimeout(x.section.server, p.WaitTime)
	x.ctx.Context, x.ctx.r, x.ctx.outermost = x.r.Context(), x.r, x.outer == nil
	if g.cfg.BufferBody > 0 {
		x.r = x.r.WithContext(&x.ctx) // the buffer stays out of the caller's request
		if err := bufferBody(x.r, g.cfg.BufferBody, &x.bodies); err != nil {
			return entered, g.bodyError(x.r, err)
		}
	}
	began := time.Now()
	err := x.acquire(p)
	entered = time.Now()
	x.outcome.Waited = entered.Sub(began)
	if err == nil {
		return entered, nil
	}
	if errors.As(err, &x.reply) {
		return entered, err
	}
	refusal := g.lockError(x.r, p, err)
	// A policy may let a request cause a lease to expire too soon, or a lock to be lost. A request
	// whose context has ended must not begin. A replica has a primary, which may grant the lock to
	// others.
	uncertain := errors.Is(err, core.ErrLockLost) || errors.Is(err, core.ErrReadOnly)
	if g.cfg.FailOpen && refusal.Type == ProblemBackendUnavailable && !uncertain && x.r.Context().Err() == nil {
		x.outcome.FailedOpen, x.outcome.Err = true, err
		if n, ok := g.lines.Count("failed open", 1); ok {
			g.cfg.Logger.Warn("reqlock: Redis is unavailable, the handler runs without a lock", "error", err, "requests", n)
		}
	}
	return entered, refusal
}

// answer answers in place of the handler.
func (x *exchange) answer(err error) {
	x.outcome.Err = err
	defer x.observe()
	if x.reply != nil {
		if known, ok := x.reply.(interface{ Status() int }); ok {
			x.outcome.Status = known.Status()
		}
		x.reply.ServeHTTP(x.w, x.r)
		return
	}
	x.outcome.Status = http.StatusInternalServerError
	var e *Error
	if errors.As(err, &e) {
		x.outcome.Status = e.Status
	}
	x.g.cfg.ErrorHandler(x.w, x.r, err)
	if e != nil {
		x.logRefusal(e)
	}
}

// run runs the handler, then releases the lease that the section still has, even if the handler
// panics or ends its goroutine.
func (x *exchange) run(next func(http.ResponseWriter, *http.Request), entered time.Time) {
	x.outcome.Ran = true
	returned := false
	lease := x.section.lease // no other goroutine has the section yet
	x.section.Context = x.handlerContext(lease)
	x.handled = *x.r.WithContext(&x.section)
	r := &x.handled
	var hold *holdTimer
	// A guard further out that has a MaxHold has made the answer.
	if lease != nil && (x.g.cfg.MaxHold > 0 || x.section.answer != nil) {
		hold = x.startMaxHold(r, lease)
	}
	defer func() {
		left := x.section.finish(x.outer)
		x.end(context.Canceled)
		hold.stop()
		x.outcome.Held = time.Since(entered)
		if returned {
			x.outcome.Status = left.status
		}
		if r.MultipartForm != nil {
			request.KeepForm(x.original, r)
		}
		x.leave(lease, left)
		x.observe()
	}()
	next(x.w, r)
	returned = true
}

// handlerContext returns a context that ends when the lease is lost; nil: the handler runs without
// a lock.
func (x *exchange) handlerContext(lease *core.Lease) context.Context {
	var ctx context.Context = &x.ctx
	if x.g.cfg.MaxHold > 0 || lease == nil {
		ctx, x.cancel = context.WithCancelCause(ctx)
	}
	if lease == nil {
		return ctx
	}
	bound, _ := lease.Bind(ctx)
	return bound
}

// end ends the handler's context. With the cause ErrMaxHold the handler still runs, and may still
// lose the lease.
func (x *exchange) end(cause error) {
	if x.cancel != nil {
		x.cancel(cause)
	}
	if bound, ok := x.section.Context.(boundContext); ok && cause != ErrMaxHold {
		bound.Unbind()
	}
}

// heldFurtherOut reports whether an outer guard holds a lock of that name.
func (x *exchange) heldFurtherOut(name string) bool {
	for s := x.outer; s != nil; s = sectionOf(s.Context) {
		if lease := s.held(); lease != nil && lease.Name() == name {
			return true
		}
	}
	return false
}

// leave releases the lease that the handler has left. It was given held; nil: it ran without a lock.
func (x *exchange) leave(held *core.Lease, left leavings) {
	err := left.failure
	if err != nil {
		x.outcome.Err = join(x.outcome.Err, err)
	}
	if left.lease != nil {
		if err = left.lease.Release(x.r.Context()); isLoss(err) {
			x.outcome.Err = join(x.outcome.Err, err)
		}
	}
	if !isLoss(err) || held == nil || x.heldFurtherOut(held.Name()) { // the outer guard logs it
		return
	}
	if n, ok := x.g.lines.Count("lost "+x.r.Pattern, 1); ok {
		x.g.cfg.Logger.Warn("reqlock: the lock was lost while the handler ran", "lock", held.LogName(),
			"method", request.Method(x.r), "pattern", x.r.Pattern, "held", x.outcome.Held, "requests", n)
	}
}

// isLoss reports whether the error of a release means that the lock was lost before.
func isLoss(err error) bool {
	return errors.Is(err, core.ErrLockLost) || errors.Is(err, core.ErrClosed)
}

// join returns both errors on one line; first may be nil.
func join(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w; %w", first, second)
}

func (x *exchange) observe() {
	if x.g.cfg.Observe != nil {
		x.g.cfg.Observe(x.r, x.outcome)
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
