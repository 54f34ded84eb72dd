package coalesce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/request"
)

// An attempt is one request in a Guard. To the inner guard it is the lock: Acquire returns the lease
// of a run, or an error that is the answer.
type attempt struct {
	g           *Guard
	next        func(*http.Request, *Recorder)
	name        string
	credentials bool
	outer       *attempt // that of the run which has made this request; nil: a client has

	flight *flight         // The flight that this request leads. nil: it leads none.
	lease  *core.OnceLease // nil: the request does not run for others.
	shared *answer         // the answer that this request uses; nil: none.
}

// Name returns the name of the lock.
func (a *attempt) Name() string { return a.name }

// Acquire joins those who want the same, in this process or others.
func (a *attempt) Acquire(ctx context.Context, opts core.AcquireOptions) (*core.Lease, error) {
	deadline := time.Now().Add(opts.WaitTime)
	for {
		f, leads, err := a.g.flights.join(a.name, a.g.cfg.MaxWaiters)
		if err != nil {
			return nil, err
		}
		if leads {
			a.flight = f
			opts.WaitTime = max(0, time.Until(deadline))
			return a.lead(ctx, opts)
		}
		result, err := a.g.flights.wait(ctx, f, deadline)
		switch {
		case err != nil:
			return nil, err
		case result.answer != nil:
			return nil, a.use(result.answer)
		case result.err != nil:
			return nil, result.err
		}
	}
}

// lead acquires the lock for all who wait in this process, or gets what another process left.
func (a *attempt) lead(ctx context.Context, opts core.AcquireOptions) (*core.Lease, error) {
	lease, record, err := a.g.locks.Once(a.name).Acquire(ctx, core.AcquireOptions{WaitTime: opts.WaitTime, LeaseTime: opts.LeaseTime})
	switch {
	case err == nil && record == nil:
		a.lease = lease
		return lease.Lease, nil
	case err == nil:
		var found *answer
		if found, err = a.open(record); err == nil {
			a.land(landing{answer: found})
			return nil, a.use(found)
		}
	}
	if ctx.Err() != nil || errors.Is(err, core.ErrNotAcquired) {
		a.land(landing{}) // Only this request has no time left.
	} else {
		a.land(landing{err: err})
	}
	return nil, err
}

func (a *attempt) land(result landing) { a.g.flights.land(a.flight, result) }

// leave ends the request. A flight that it leads has landed by then, unless something has panicked.
func (a *attempt) leave() {
	if a.flight != nil {
		a.land(landing{})
	}
	a.g.flights.drop(a.shared)
}

// use returns the error that answers the request with what others share, or runs it for itself.
func (a *attempt) use(shared *answer) error {
	a.shared = shared
	if shared.because != "" {
		return &alone{NotShared{shared.because}, a.next}
	}
	return &sharing{a}
}

// A sharing answers a request with the answer of another one.
type sharing struct{ a *attempt }

func (s *sharing) Error() string { return ErrShared.Error() }
func (s *sharing) Unwrap() error { return ErrShared }

// Status returns the status of the answer, for guard.Outcome.
func (s *sharing) Status() int { return s.a.shared.status }

func (s *sharing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.a.shared.send(w, r, !s.a.g.cfg.Unmarked)
}

// An alone runs the handler for one request, because the answer to another one was not shared.
type alone struct {
	because NotShared
	next    func(*http.Request, *Recorder)
}

func (s *alone) Error() string                                    { return s.because.Error() }
func (s *alone) Unwrap() error                                    { return &s.because }
func (s *alone) ServeHTTP(_ http.ResponseWriter, r *http.Request) { s.next(r, nil) }

// run runs the handler, for all who wait if the request has the lock.
func (a *attempt) run(r *http.Request) {
	if a.lease == nil {
		a.next(r, nil)
		return
	}
	ctx := newRunContext(r.Context(), a.lease.Lease)
	defer ctx.end()
	rec := &Recorder{method: r.Method, limit: a.g.cfg.MaxAnswer}
	rec.unshared = func(head answerHead) string { return head.unshared(a.credentials, a.g.cfg.Vary) }
	rec.onRefuse = func() {
		ctx.follow()
		a.finish(r, &answer{because: rec.because}, min(a.g.cfg.Keep, mostAlone))
	}
	own := r.WithContext(ctx)
	defer request.KeepForm(r, own)
	own.Header = r.Header.Clone()
	own.Header.Del("If-None-Match") // The others may not have what this client has.
	own.Header.Del("If-Modified-Since")
	returned := false
	defer func() {
		if !returned {
			a.fail(r, rec)
		}
	}()
	a.next(own, rec)
	returned = true
	switch {
	case rec.because != "":
	case rec.head.status == 0 && guard.Interruption(own.Context()) != nil:
		rec.refuse(becauseIncomplete) // An empty answer is not what the handler has chosen.
	default:
		rec.complete()
	}
	guard.SetStatus(r.Context(), rec.head.status)
	if rec.because != "" {
		return
	}
	if ttl := a.ttl(rec.head.status); ttl > 0 {
		a.finish(r, rec.answer(), ttl)
	} else {
		rec.account.Close()
		a.land(landing{})
	}
}

// mostAlone bounds how long requests run for themselves because one answer was not shared.
const mostAlone = 2 * time.Second

// fail is for a run that has panicked or ended its goroutine.
func (a *attempt) fail(r *http.Request, rec *Recorder) {
	rec.account.Close()
	if ttl := a.ttl(http.StatusInternalServerError); rec.because == "" && ttl > 0 {
		a.finish(r, &answer{
			status: http.StatusInternalServerError,
			header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}},
			body:   []byte("Internal Server Error\n"),
		}, ttl)
	}
}

// ttl returns how long to keep an answer with a status. 0: the next request runs.
func (a *attempt) ttl(status int) time.Duration {
	if status >= 500 {
		return max(0, a.g.cfg.ErrorFor)
	}
	return a.g.cfg.Keep
}

// finish gives those who wait the answer, in this process at once, and releases the lock.
func (a *attempt) finish(r *http.Request, done *answer, ttl time.Duration) {
	if a.lease.Err() != nil { // Another request may run already.
		if done.account != nil {
			done.account.Close()
		}
		a.land(landing{})
		return
	}
	a.shared = done
	record, err := a.seal(done)
	a.land(landing{answer: done})
	ctx := context.WithoutCancel(r.Context())
	_ = guard.ReleaseBy(ctx, func(*core.Lease) error { // The error is in the Outcome.
		if err != nil {
			return errors.Join(err, a.lease.Release(ctx))
		}
		var spare []byte
		if done.because == "" {
			spare, _ = a.seal(&answer{because: becauseTooLarge})
		}
		released := a.lease.ReleaseWithSpare(ctx, record, spare, ttl)
		if done.because != "" {
			return errors.Join(&NotShared{done.because}, released)
		}
		return released
	})
}

// seal encodes an answer for Redis.
func (a *attempt) seal(done *answer) ([]byte, error) {
	data := done.encode()
	if a.g.cfg.Codec == nil {
		return data, nil
	}
	sealed, err := a.g.cfg.Codec.Seal(data, a.name)
	if err == nil && len(sealed) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		err = fmt.Errorf("reqlock: coalesce: Config.Codec failed to seal an answer: %w", err)
		if n, ok := a.g.lines.Count("seal", 1); ok {
			a.g.cfg.Logger.Error("reqlock: coalesce: answers cannot be sealed, so other processes run as well", "error", err, "requests", n)
		}
	}
	return sealed, err
}

// open decodes an answer from Redis. One that cannot be read is shared with nobody. The error says
// that there is no room for it.
func (a *attempt) open(record []byte) (*answer, error) {
	data, size, err := record, len(record), error(nil)
	if a.g.cfg.Codec != nil {
		data, err = a.g.cfg.Codec.Open(record, a.name)
		size += len(data)
	}
	var found *answer
	if err == nil {
		found, err = decodeAnswer(data)
	}
	if err != nil {
		if n, ok := a.g.lines.Count("open", 1); ok {
			a.g.cfg.Logger.Error("reqlock: coalesce: the answer of another process cannot be read, so requests run for themselves",
				"error", err, "requests", n)
		}
		return &answer{because: becauseUnreadable}, nil
	}
	found.account = &request.Account{}
	return found, found.account.Hold(size)
}

// A runContext is that of a run. It has the values of its parent. It ends when the lease is lost, and
// from follow on when its parent does.
type runContext struct {
	context.Context
	parent     context.Context
	follows    atomic.Bool
	cancel     context.CancelCauseFunc
	unbind     context.CancelFunc
	stopParent func() bool
}

func newRunContext(parent context.Context, lease *core.Lease) *runContext {
	c := &runContext{parent: parent}
	c.Context, c.cancel = context.WithCancelCause(context.WithoutCancel(parent))
	c.Context, c.unbind = lease.Bind(c.Context)
	c.stopParent = context.AfterFunc(parent, c.parentEnded)
	return c
}

func (c *runContext) parentEnded() {
	if c.follows.Load() {
		c.cancel(context.Cause(c.parent))
	}
}

// follow is for a run whose answer is for its own client alone.
func (c *runContext) follow() {
	c.follows.Store(true)
	if c.parent.Err() != nil {
		c.parentEnded()
	}
}

func (c *runContext) end() {
	c.cancel(context.Canceled)
	c.unbind()
	c.stopParent()
}
