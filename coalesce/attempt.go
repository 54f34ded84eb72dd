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
	// outer is the attempt whose run has made this request. nil: a client has made it.
	outer *attempt

	// lead and lease are those of a request that runs for others. nil: it does not.
	lead   *lead
	lease  *core.OnceLease
	shared *outcome // what this request uses; nil: nothing.
	// because says why a request runs for itself under Config.Limit. "": it does not.
	because string
}

// Name returns the name of the lock.
func (a *attempt) Name() string { return a.name }

// group returns the key of the requests in this process that want the same.
func (a *attempt) group() groupKey { return groupKey{locks: a.g.locks, key: a.name, guard: a.g} }

// Acquire joins those who want the same, in this process or others.
func (a *attempt) Acquire(ctx context.Context, opts core.AcquireOptions) (*core.Lease, error) {
	began := time.Now()
	own, found, err := share(ctx, a.group(), a.g.cfg.MaxWaiters,
		Options{WaitTime: opts.WaitTime, LeaseTime: opts.LeaseTime})
	switch {
	case err != nil:
		return nil, err
	case own != nil:
		a.lead, a.lease = own.lead, own.lease
		if a.lease.Renews() {
			a.lead.cede() // The others find the stale answer in Redis, and do not wait for the run.
		}
		return own.lease.Lease, nil
	}
	var solo *alone
	if err := a.use(found); a.g.cfg.Limit == 0 || !errors.As(err, &solo) {
		return nil, err
	}
	a.because = solo.because.Reason
	opts.WaitTime, opts.MaxWaiters = max(0, opts.WaitTime-time.Since(began)), a.g.cfg.MaxWaiters
	return a.g.locks.Semaphore(a.name+":alone", a.g.cfg.Limit).Acquire(ctx, opts)
}

// use returns the error that answers the request with what others share, or runs it for itself.
func (a *attempt) use(found *outcome) error {
	a.shared = found
	found.once.Do(func() {
		if found.answer == nil {
			found.answer, found.failed = a.open(found.record)
		}
	})
	switch {
	case found.failed != nil:
		return found.failed
	case found.answer.because != "":
		return &alone{NotShared{found.answer.because}, a.next}
	}
	return &sharing{a.g, found.answer}
}

// leave ends the request. The last one that uses an answer gives back its memory.
func (a *attempt) leave() {
	if a.lead != nil {
		a.lead.cede() // unless it has landed
	}
	if a.shared != nil && a.shared.users.Add(-1) == 0 && a.shared.answer != nil && a.shared.answer.account != nil {
		a.shared.answer.account.Close()
	}
}

// A sharing answers a request with the answer of another one.
type sharing struct {
	g      *Guard
	answer *answer
}

func (s *sharing) Error() string { return ErrShared.Error() }
func (s *sharing) Unwrap() error { return ErrShared }

// Status returns the status of the answer, for guard.Outcome.
func (s *sharing) Status() int { return s.answer.status }

func (s *sharing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.answer.send(w, r, !s.g.cfg.Unmarked, s.g.cfg.Stale > 0)
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
		if a.because != "" {
			ctx := context.WithoutCancel(r.Context())
			_ = guard.ReleaseBy(ctx, func(permit *core.Lease) error { // The error is in the Outcome.
				return errors.Join(&NotShared{a.because}, permit.Release(ctx))
			})
		}
		return
	}
	ctx := newRunContext(r.Context(), a.lease.Lease)
	defer ctx.end()
	// When the lease is lost, another request runs, even while this one still does.
	defer context.AfterFunc(ctx, a.lead.cede)()
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
		a.lead.cede()
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
		return
	}
	done.born = time.Now()
	a.shared = &outcome{answer: done}
	a.lead.land(a.shared) // Those who wait here need not wait until it is sealed.
	renews, failed := a.lease.Renews(), done.because != "" || done.status >= 500
	if renews && failed {
		a.postpone(r, done, ttl)
		return
	}
	record, err := a.seal(done)
	ctx := context.WithoutCancel(r.Context())
	_ = guard.ReleaseBy(ctx, func(*core.Lease) error { // The error is in the Outcome.
		if err != nil {
			return errors.Join(err, a.lease.Release(ctx))
		}
		left := core.Record{Value: record, TTL: ttl}
		if !failed {
			left.Stale = a.g.cfg.Stale
		}
		if done.because == "" && !renews { // The spare would replace the stale answer.
			left.Spare, _ = a.seal(&answer{because: becauseTooLarge})
		}
		return done.joined(a.lease.ReleaseRecord(ctx, left))
	})
	if renews {
		renewed(a.group())
	}
}

// postpone releases the lock for a run that has nothing better for others than the stale answer.
func (a *attempt) postpone(r *http.Request, done *answer, pause time.Duration) {
	ctx := context.WithoutCancel(r.Context())
	_ = guard.ReleaseBy(ctx, func(*core.Lease) error { // The error is in the Outcome.
		return done.joined(a.lease.Postpone(ctx, pause))
	})
}

// seal encodes an answer for Redis.
func (a *attempt) seal(done *answer) ([]byte, error) {
	// What is sealed is not deflated: its length would tell something of the answer.
	data := done.encode(a.g.cfg.Codec == nil)
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

// open decodes an answer from Redis. One that cannot be read is shared with no one. The error says
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
		return a.unreadable(err), nil
	}
	found.account = &request.Account{}
	if err := found.account.Hold(size + found.packed); err != nil {
		return nil, err
	}
	if found.packed > 0 {
		if found.body, err = unpack(found.body, found.packed); err != nil {
			found.account.Close()
			return a.unreadable(err), nil
		}
	}
	return found, nil
}

// unreadable returns the answer that is shared with no one, for a record that cannot be read.
func (a *attempt) unreadable(err error) *answer {
	if n, ok := a.g.lines.Count("open", 1); ok {
		a.g.cfg.Logger.Error("reqlock: coalesce: the answer of another process cannot be read, so requests run for themselves",
			"error", err, "requests", n)
	}
	return &answer{because: becauseUnreadable}
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
