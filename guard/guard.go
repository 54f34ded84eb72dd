package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/bodybudget"
	"github.com/reqlock/reqlock/internal/loglimit"
)

// A Guard holds locks around handlers. It is safe for concurrent use and has nothing to close.
type Guard struct {
	locks *core.Client
	cfg   Config
	warn  sync.Once      // of a WaitTime beyond the server's WriteTimeout
	holds loglimit.Limit // of handlers that MaxHold ends, by route
}

// New returns a guard that takes its locks from a client; nil will do if Config.Locker makes them. It refuses a Config that can never
// work; see Config.Validate.
func New(locks *core.Client, cfg Config) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if locks == nil && cfg.Locker == nil {
		return nil, fmt.Errorf("%w: there is neither a *core.Client nor a Locker", ErrInvalidConfig)
	}
	return &Guard{locks: locks, cfg: cfg.withDefaults()}, nil
}

// Serve runs next under the lock of the request, or answers in its place. next gets w as it is, and a copy of r whose
// context ends when a lock is lost, when MaxHold is over, and when next returns.
func (g *Guard) Serve(w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request)) {
	if g.cfg.PassPreflight && isPreflight(r) {
		next(w, r)
		return
	}
	v := &visit{g: g, w: w, r: r, came: r}
	defer v.bodies.Close()
	policy, err := g.policy(r, &v.bodies)
	if err == nil && policy.Skip {
		next(w, r)
		return
	}
	if err == nil {
		err = v.enter(policy)
	}
	if err != nil && !v.outcome.FailedOpen {
		v.refuse(err)
		return
	}
	v.run(next)
}

// isPreflight reports whether r is a CORS preflight.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// A visit is one request in one guard.
type visit struct {
	g       *Guard
	w       http.ResponseWriter
	r       *http.Request
	came    *http.Request   // as it was given to Serve
	ctx     context.Context // the request's, with its owner
	section section
	bodies  bodybudget.Account // what was read of its body for this guard
	outcome Outcome
	overdue bool // MaxHold was over while the handler had the lock

	// Of the handler's context; nil where there is nothing to do.
	cancel context.CancelCauseFunc
	unbind context.CancelFunc
}

// enter acquires the locks of the request, all or none.
func (v *visit) enter(p Policy) error {
	g := v.g
	v.section.server = server(v.r.Context())
	g.checkWriteTimeout(v.section.server, p.WaitTime)
	v.ctx = ownerContext(v.r.Context())
	if g.cfg.BufferBody > 0 {
		v.r = v.r.WithContext(v.ctx) // the buffer is not for others
		if err := bufferBody(v.r, g.cfg.BufferBody, &v.bodies); err != nil {
			return g.bodyError(v.r, err)
		}
	}
	began := time.Now()
	err := v.acquire(p)
	v.outcome.Waited = time.Since(began)
	if err == nil {
		return nil
	}
	refusal := g.lockError(v.r, p.WaitTime, err)
	// A lease that was over too soon may be the doing of a request, by way of its policy; so may a lock lost on the way. And
	// a request whose time is over is not to be begun.
	if g.cfg.FailOpen && refusal.Type == ProblemBackendUnavailable && !errors.Is(err, core.ErrLockLost) && v.r.Context().Err() == nil {
		v.outcome.FailedOpen, v.outcome.Err = true, err
		g.cfg.Logger.Warn("reqlock: Redis cannot be asked, the handler runs without a lock", "error", err)
	}
	return refusal
}

// ownerContext gives each request an owner of its own, but the same to all guards that it passes. A section of another server
// is that of a handler whose context has become this server's BaseContext.
func ownerContext(ctx context.Context) context.Context {
	if s := sectionFrom(ctx); s != nil && s.server == server(ctx) {
		return ctx
	}
	return core.WithNewOwner(ctx)
}

// server is the one that the request came by; nil: it is not known.
func server(ctx context.Context) *http.Server {
	srv, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	return srv
}

// acquire takes the lock of the request, or all of them as one.
func (v *visit) acquire(p Policy) error {
	lock, err := v.g.locksOf(v.r, p)
	if err != nil {
		return err
	}
	lease, err := lock.Acquire(v.ctx, core.AcquireOptions{
		WaitTime:   p.WaitTime,
		LeaseTime:  p.LeaseTime,
		MaxWaiters: v.g.cfg.MaxWaiters,
	})
	if err != nil {
		return err
	}
	if lease == nil {
		return fmt.Errorf("%w: a lock of Config.Locker returned neither a lease nor an error", core.ErrInvalidOptions)
	}
	v.section.lease = lease
	return nil
}

func (g *Guard) locksOf(r *http.Request, p Policy) (core.Locker, error) {
	names := g.names(p.Keys)
	if len(names) == 1 {
		return g.lock(r, names[0], p.Mode)
	}
	locks := make([]core.Locker, len(names))
	for i, name := range names {
		var err error
		if locks[i], err = g.lock(r, name, p.Mode); err != nil {
			return nil, err
		}
	}
	return core.MultiLock(locks...), nil
}

func (g *Guard) lock(r *http.Request, name string, mode Mode) (core.Locker, error) {
	if g.cfg.Locker == nil {
		return modes[mode].lock(g.locks, r.Method, name), nil
	}
	if lock := g.cfg.Locker(r, name); lock != nil {
		return lock, nil
	}
	return nil, fmt.Errorf("%w: Config.Locker returned nil", core.ErrInvalidOptions)
}

func (g *Guard) bodyError(r *http.Request, err error) error {
	switch {
	case errors.Is(err, bodybudget.ErrTooLarge):
		return g.refusal(ProblemBodyTooLarge, err)
	case errors.Is(err, bodybudget.ErrBusy):
		return g.refusal(ProblemBusy, err)
	case r.Context().Err() != nil:
		return g.refusal(ProblemClientGone, err)
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return g.refusal(ProblemBodyTooLarge, err)
	}
	return g.refusal(ProblemBodyUnreadable, err)
}

// refuse answers in the handler's place.
func (v *visit) refuse(err error) {
	v.outcome.Err = err
	v.outcome.Status = http.StatusInternalServerError
	var e *Error
	if errors.As(err, &e) {
		v.outcome.Status = e.Status
	}
	defer v.observe()
	v.g.cfg.ErrorHandler(v.w, v.r, err)
}

// run runs the handler and then lets go of what the section still has: also when the handler panics or ends its goroutine,
// neither of which is stopped here.
func (v *visit) run(next func(http.ResponseWriter, *http.Request)) {
	v.outcome.Ran = true
	returned := false
	began := time.Now()
	lease := v.section.lease
	v.section.Context = v.handlerContext(lease)
	r := v.r.WithContext(&v.section)
	endMaxHold := v.startMaxHold(r, lease)
	stopFollowing := v.followMaxHold(lease)
	defer func() {
		stopFollowing()
		v.end(context.Canceled)
		endMaxHold()
		v.outcome.Held = time.Since(began)
		if returned {
			v.outcome.Status = v.section.answered()
		}
		KeepForm(v.came, r)
		v.leave()
		v.observe()
	}()
	next(v.w, r)
	returned = true
}

// handlerContext is the request's context, ending when the lease is lost. Without a lease, the handler runs without a lock.
func (v *visit) handlerContext(lease *core.Lease) context.Context {
	ctx := v.ctx
	if v.g.cfg.MaxHold > 0 || lease == nil { // else the lease's ends it well enough
		ctx, v.cancel = context.WithCancelCause(ctx)
	}
	if lease != nil {
		ctx, v.unbind = lease.Bind(ctx)
	}
	return ctx
}

// end ends the handler's context. With the cause ErrMaxHold the handler still runs, and may still lose the lease.
func (v *visit) end(cause error) {
	if v.cancel != nil {
		v.cancel(cause)
	}
	if v.unbind != nil && cause != ErrMaxHold {
		v.unbind()
	}
}

// startMaxHold sets the end of MaxHold, if there is one. The function it returns calls it off, and waits for it if it has begun.
func (v *visit) startMaxHold(r *http.Request, lease *core.Lease) func() {
	if v.g.cfg.MaxHold == 0 || lease == nil {
		return func() {}
	}
	body := watchBody(r)
	done := make(chan struct{})
	timer := time.AfterFunc(v.g.cfg.MaxHold, func() {
		defer close(done)
		if !v.section.stopRenewal() {
			return // released or detached: it holds nothing any more
		}
		v.overdue = true
		v.end(ErrMaxHold)
		if body != nil {
			body.end(v.w) // a handler that waits for the rest of it does not look at its context
		}
		if v.g.holds.Allow(v.r.Method + " " + v.r.Pattern) {
			v.g.cfg.Logger.Warn("reqlock: a handler has held its lock for MaxHold: its context has ended, and the lock is not renewed any more",
				"method", v.r.Method, "pattern", v.r.Pattern, "MaxHold", v.g.cfg.MaxHold)
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		<-done
		if body != nil {
			body.finish(v.w, r)
		}
	}
}

// followMaxHold lets the lease run out once a guard further out has held the same lock for its MaxHold: it would be renewed for
// this one.
func (v *visit) followMaxHold(lease *core.Lease) (stop func() bool) {
	if lease != nil {
		for s := sectionFrom(v.ctx); s != nil; s = sectionFrom(s.Context) {
			if outer, held := LeaseFrom(s); held && outer.Name() == lease.Name() {
				return context.AfterFunc(v.ctx, func() {
					if errors.Is(context.Cause(v.ctx), ErrMaxHold) {
						v.section.stopRenewal()
					}
				})
			}
		}
	}
	return func() bool { return true }
}

// leave releases what the handler has neither released nor detached.
func (v *visit) leave() {
	if v.overdue {
		v.outcome.Err = ErrMaxHold
	}
	err := v.section.failure()
	if err != nil {
		v.outcome.Err = join(v.outcome.Err, err)
	}
	if lease := v.section.take(); lease != nil {
		if err = lease.Release(v.r.Context()); isLoss(err) {
			v.outcome.Err = join(v.outcome.Err, err)
		}
	}
	if isLoss(err) {
		v.g.cfg.Logger.Warn("reqlock: the lock was lost while the handler ran", "method", v.r.Method, "pattern", v.r.Pattern, "held", v.outcome.Held)
	}
}

// isLoss reports whether an error of a release says that the lock had been lost before.
func isLoss(err error) bool {
	return errors.Is(err, core.ErrLockLost) || errors.Is(err, core.ErrClosed)
}

// join is both errors on one line; one of them where the other is nil.
func join(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w; %w", first, second)
}

func (v *visit) observe() {
	if v.g.cfg.Observe != nil {
		v.g.cfg.Observe(v.r, v.outcome)
	}
}

// checkWriteTimeout warns once: the server would cut the connection before the answer is there.
func (g *Guard) checkWriteTimeout(srv *http.Server, wait time.Duration) {
	if srv == nil || srv.WriteTimeout <= 0 || wait < srv.WriteTimeout {
		return
	}
	g.warn.Do(func() {
		g.cfg.Logger.Warn("reqlock: WaitTime exceeds the server's WriteTimeout: a client that waits so long sees its connection cut, and no answer",
			"WaitTime", wait, "WriteTimeout", srv.WriteTimeout)
	})
}
