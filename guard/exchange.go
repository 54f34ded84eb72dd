package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/request"
)

// An exchange is one request in one guard.
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
}

// A boundContext is the context of core.Lease.Bind. Its Unbind is the function that Bind returns as
// well, which would be one more allocation.
type boundContext interface {
	context.Context
	Unbind()
}

// enter acquires the locks of the request, all or none. entered is when the wait for them was over.
func (x *exchange) enter(p Policy) (entered time.Time, refused error) {
	g := x.g
	x.findOuter()
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
	refusal := g.lockError(x.r, p.WaitTime, err)
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

// findOuter finds the section of the guard around this one. A section of another server belongs to
// a handler whose context became the BaseContext of this server.
func (x *exchange) findOuter() {
	x.section.server, x.section.pattern = request.Server(x.r.Context()), x.r.Pattern
	if s := sectionOf(x.r.Context()); s != nil && s.server == x.section.server {
		x.outer, x.section.answer = s, s.answer
	}
}

// acquire takes the lock of the request, or all of them as one.
func (x *exchange) acquire(p Policy) error {
	lock, err := x.lockOf(p)
	if err != nil {
		return err
	}
	lease, err := lock.Acquire(&x.ctx, core.AcquireOptions{
		WaitTime:   p.WaitTime,
		LeaseTime:  p.LeaseTime,
		MaxWaiters: x.g.cfg.MaxWaiters,
	})
	if err != nil {
		return err
	}
	if lease == nil {
		return fmt.Errorf("%w: a lock of Config.Locker or Policy.Lock returned neither a lease nor an error", core.ErrInvalidOptions)
	}
	x.section.hold(lease)
	return nil
}

// lockOf returns one lock that stands for all locks of the request.
func (x *exchange) lockOf(p Policy) (core.Locker, error) {
	if p.Lock != nil {
		return p.Lock, nil
	}
	names := x.g.names(p.Keys)
	if len(names) == 1 {
		return x.lockInto(&x.lock, names[0], p)
	}
	locks := make([]core.Locker, len(names))
	for i, name := range names {
		var err error
		if locks[i], err = x.lockInto(new(core.Lock), name, p); err != nil {
			return nil, err
		}
	}
	return core.MultiLock(locks...), nil
}

// lockInto returns the lock of a name. It makes room that lock, unless Config.Locker has one.
func (x *exchange) lockInto(room *core.Lock, name string, p Policy) (core.Locker, error) {
	if x.g.cfg.Locker == nil {
		*room = p.Mode.lockOf(x.g.locks, x.r.Method, name, p.Fenced)
		return room, nil
	}
	if lock := x.g.cfg.Locker(x.r, name); lock != nil {
		return lock, nil
	}
	return nil, fmt.Errorf("%w: Config.Locker returned nil", core.ErrInvalidOptions)
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
}

// run runs the handler, then releases the lease that the section still has, even if the handler
// panics or ends its goroutine.
func (x *exchange) run(next func(http.ResponseWriter, *http.Request), entered time.Time) {
	x.outcome.Ran = true
	returned := false
	lease := x.section.held()
	x.section.Context = x.handlerContext(lease)
	x.handled = *x.r.WithContext(&x.section)
	r := &x.handled
	hold := x.startMaxHold(r, lease)
	stopFollowing := x.followMaxHold(lease)
	defer func() {
		x.tellOuter()
		stopFollowing()
		x.end(context.Canceled)
		hold.stop()
		x.outcome.Held = time.Since(entered)
		if returned {
			x.outcome.Status = x.section.answered()
		}
		request.KeepForm(x.original, r)
		x.leave(lease)
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

// followMaxHold lets the lease expire once an outer guard has held the same lock for its MaxHold.
// Otherwise the inner lease would keep renewing it.
func (x *exchange) followMaxHold(lease *core.Lease) (stop func() bool) {
	if lease == nil || x.outer == nil || x.outer.answer == nil { // no outer guard has a MaxHold
		return func() bool { return true }
	}
	return context.AfterFunc(&x.ctx, func() {
		if errors.Is(context.Cause(&x.ctx), ErrMaxHold) && x.heldFurtherOut(lease.Name()) {
			x.section.stopRenewal()
		}
	})
}

// tellOuter tells the guard around this one that the context of the handler has ended before it
// returned, or that of one further in: it may record an answer, and must not take that for one that
// the handler gave in order.
func (x *exchange) tellOuter() {
	if x.outer == nil {
		return
	}
	cause := x.section.interrupted()
	if x.section.Err() != nil {
		cause = context.Cause(x.section.Context)
	}
	if cause != nil {
		x.outer.interrupt(cause)
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

// leave releases the lease that the handler was given, unless it has released or detached it. held
// is nil if it ran without a lock.
func (x *exchange) leave(held *core.Lease) {
	err := x.section.releaseFailure()
	if err != nil {
		x.outcome.Err = join(x.outcome.Err, err)
	}
	if lease := x.section.take(); lease != nil {
		if err = lease.Release(x.r.Context()); isLoss(err) {
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
