package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

var onceFailures = []scenario{
	{name: "once: panics, aborts and Goexit", run: onceFails},
	{name: "once: panics, aborts and Goexit, with OutcomeRefuse", run: onceFailsRefuse},
	{name: "once: what the handler says about its work", run: onceReports},
	{name: "once: a handler that is done panics", run: onceDonePanics},
	{name: "once: a 502 after the lock was lost, with OutcomeRefuse", run: onceLateFailure, setup: []func(*setup){watchdogTimeout(2 * time.Second)}},
	{name: "once: answers after the context has ended", run: onceLateAnswers},
	{name: "once: a panic that outer middleware answers", run: oncePanicAnswered},
	{name: "once: the client hangs up", run: onceClientHangsUp},
	{name: "once: the client hangs up while it waits", run: onceClientLeavesQueue},
	{name: "once: a deadline ends the handler", run: onceDeadline},
	{name: "once: MaxHold", run: onceMaxHold},
	{name: "once: MaxHold ends a handler that answers nothing", run: onceInterrupted},
	{name: "once: MaxHold and a lease that expires", run: onceMaxHoldLost, setup: []func(*setup){watchdogTimeout(2 * time.Second)}},
	{name: "once: too many wait", run: onceTooMany},
	{name: "once: the store is refused", run: onceStoreRefused, setup: []func(*setup){proxied}},
	{name: "once: Redis falls silent after the run", run: onceRedisSilent, setup: []func(*setup){proxied}},
	{name: "once: Redis falls silent after the run, with OutcomeRefuse", run: onceRedisSilentRefuse, setup: []func(*setup){proxied}},
	{name: "once: Redis is unavailable", run: onceRedisDown, setup: []func(*setup){proxied}},
	{name: "once: FailOpen", run: onceFailsOpen, setup: []func(*setup){proxied}},
	{name: "once: a run that lost its key stores nothing", run: onceOvertaken},
	{name: "once: a lost run, with OutcomeRefuse", run: onceLostRefuse},
	{name: "once: another request while the first runs, and after it has failed", run: onceBinds},
	{name: "once: a hundred repeats wait for a run that fails", run: onceHerd},
	{name: "once: a record that Redis refuses for good", run: onceTooLargeForRedis},
	{name: "once: records of other versions", run: onceOtherRecords},
	{name: "once: the handler releases its key", run: onceGivenUp},
	{name: "once: the lock client is closed", run: onceClosed},
}

// endingsBadly are handlers that do not return.
var endingsBadly = []http.HandlerFunc{
	func(http.ResponseWriter, *http.Request) { panic(errExploded) },
	func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		panic(http.ErrAbortHandler)
	},
	func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	func(http.ResponseWriter, *http.Request) { runtime.Goexit() },
}

func onceFails(e *env) {
	for _, end := range endingsBadly {
		var runs atomic.Int64
		s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			if runs.Add(1) <= 2 {
				end(w, r)
			}
			_, _ = io.WriteString(w, "done")
		})
		for range 2 {
			if a := s.send(s.paying("x")); a.err == nil {
				e.Errorf("the answer is %+v, want none", a)
			}
			e.outcome() // the key is free now
			if names := e.records(); len(names) > 0 {
				e.Errorf("left in Redis: %q", names)
			}
		}
		first := s.pay("x")
		first.wantOwn(e, 200, "done")
		s.pay("x").wantReplay(e, first)
		e.outcomesOf(2)
		e.rdb.Del(background, e.record())
	}
}

// onceFailsRefuse shows that a handler that does not return runs at most once with OutcomeRefuse,
// whatever it has said. The client does not resend by itself, as Go's does on a used connection.
func onceFailsRefuse(e *env) {
	for _, end := range endingsBadly {
		for _, says := range []func(idempotency.Report){func(idempotency.Report) {}, idempotency.Report.NothingDone} {
			var runs atomic.Int64
			s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				says(idempotency.Outcome(r.Context()))
				end(w, r)
			}, refuses)
			_ = s.send(s.paying("x"))
			e.outcome() // the key is free now
			s.pay("x").wantProblem(e, 409, "outcome-unknown", "")
			s.pay("y").wantProblem(e, 422, "key-reused", "")
			if runs.Load() != 1 {
				e.Errorf("the handler ran %d times, want once", runs.Load())
			}
			e.outcomesOf(2)
			e.rdb.Del(background, e.record())
		}
	}
}

// onceReports has handlers that say themselves what they did. It counts for more than the status.
func onceReports(e *env) {
	for _, test := range []struct {
		says   func(idempotency.Report)
		status int
		kept   bool
	}{
		{idempotency.Report.NothingDone, 201, false},
		{idempotency.Report.NothingDone, 422, false},
		{idempotency.Report.Done, 502, true},
		{idempotency.Report.Done, 429, true},
		{func(r idempotency.Report) { r.NothingDone(); r.Done() }, 503, true},
		{func(r idempotency.Report) { r.Done(); r.NothingDone() }, 200, false},
		{func(idempotency.Report) {}, 502, false},
	} {
		for _, change := range []func(*idempotency.Config){func(*idempotency.Config) {}, refuses} {
			var runs atomic.Int64
			s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
				test.says(idempotency.Outcome(r.Context()))
				w.WriteHeader(test.status)
				_, _ = fmt.Fprint(w, runs.Add(1))
			}, change)
			first := s.pay("x")
			first.wantOwn(e, test.status, "1")
			if test.kept {
				s.pay("x").wantReplay(e, first)
			} else {
				s.pay("x").wantOwn(e, test.status, "2")
			}
			e.outcomesOf(2)
			e.forgetKeys()
		}
	}
}

// onceDonePanics has a handler that is done when it panics. No repeat runs, even with OutcomeRerun.
func onceDonePanics(e *env) {
	var runs atomic.Int64
	s := e.serveOnce(func(_ http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		idempotency.Outcome(r.Context()).Done()
		panic(http.ErrAbortHandler)
	})
	_ = s.send(s.paying("x"))
	e.outcome()
	s.pay("x").wantProblem(e, 409, "not-replayable", "")
	if runs.Load() != 1 {
		e.Errorf("the handler ran %d times, want once", runs.Load())
	}
}

// onceLateFailure has a handler that answers 502 after it has lost its lock, or after MaxHold. With
// OutcomeRefuse, no repeat runs.
func onceLateFailure(e *env) {
	for what, change := range map[string]func(*idempotency.Config){
		"lost": func(*idempotency.Config) {}, "MaxHold": holdsKeyFor,
	} {
		var runs atomic.Int64
		s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			if what == "lost" {
				e.rdb.Del(background, e.onceLockName())
			}
			await(e, "the handler's context ends", r.Context().Done())
			w.WriteHeader(http.StatusBadGateway)
		}, refuses, change)
		s.pay("x").want(e, 502, "")
		e.outcome()
		s.pay("x").wantProblem(e, 409, "outcome-unknown", "")
		if runs.Load() != 1 {
			e.Errorf("%s: the handler ran %d times, want once", what, runs.Load())
		}
		e.outcome()
		e.rdb.Del(background, e.record())
	}
}

// onceLateAnswers has a handler that answers the end of its context with 400, as one does that takes
// any error of reading for one of the client. A repeat runs again, or gets 409 with OutcomeRefuse.
// But a 201 is a result: the work is done.
func onceLateAnswers(e *env) {
	var runs atomic.Int64
	handle := func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		status, err := strconv.Atoi(r.Header.Get("X-Late"))
		if err == nil {
			await(e, "the handler's context ends", r.Context().Done())
		} else {
			status = http.StatusOK
		}
		w.WriteHeader(status)
	}
	deadline := around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Late") != "" {
				ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
				defer cancel()
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(w, r)
		})
	})
	for what, s := range map[string]*site{
		"deadline":         e.serveWith(deadline, Route{Pattern: orders, Once: []idempotency.Config{e.once()}, Handler: handle}),
		"deadline, Refuse": e.serveWith(deadline, Route{Pattern: orders, Once: []idempotency.Config{e.once(refuses)}, Handler: handle}),
		"MaxHold":          e.serveOnce(handle, holdsKeyFor),
		"MaxHold, Refuse":  e.serveOnce(handle, holdsKeyFor, refuses),
	} {
		runs.Store(0)
		want := int64(2)
		s.pay("x", with("X-User", what), with("X-Late", "400")).wantOwn(e, 400, "")
		if strings.HasSuffix(what, "Refuse") {
			want = 1
			s.pay("x", with("X-User", what)).wantProblem(e, 409, "outcome-unknown", "")
		} else {
			again := s.pay("x", with("X-User", what))
			again.wantOwn(e, 200, "")
			s.pay("x", with("X-User", what)).wantReplay(e, again)
		}
		if runs.Load() != want {
			e.Errorf("%s: the handler ran %d times, want %d", what, runs.Load(), want)
		}
		done := s.pay("x", with("X-User", what+", done"), with("X-Late", "201"))
		done.wantOwn(e, 201, "")
		s.pay("x", with("X-User", what+", done")).wantReplay(e, done)
	}
}

func oncePanicAnswered(e *env) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := e.serveWith(recovering(caught, stacks, func() {}), Route{Pattern: orders, Once: []idempotency.Config{e.once()}, Handler: explode})
	s.pay("x").wantOwn(e, 500, "")
	if p := await(e, "the middleware recovers", caught); p != errExploded {
		e.Errorf("the middleware recovered %v", p)
	}
	if stack := await(e, "the middleware recovers", stacks); !strings.Contains(stack, "adaptertest.explode(") {
		e.Errorf("the stack does not show the handler:\n%s", stack)
	}
	s = e.serveWith(recovering(caught, stacks, func() {}), Route{Pattern: orders, Once: []idempotency.Config{e.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "begun")
		panic(errExploded)
	}})
	s.pay("x").wantOwn(e, 201, "begun") // as without a recorder
	await(e, "the middleware recovers", caught)
	await(e, "the middleware recovers", stacks)
	if names := e.records(); len(names) > 0 {
		e.Errorf("left in Redis: %q", names)
	}
}

func onceClientHangsUp(e *env) {
	g := e.gate()
	ctx, noticed := make(chan context.Context, 2), make(chan struct{})
	s := e.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx <- r.Context()
			next.ServeHTTP(w, r)
		})
	}), Route{Pattern: orders, Once: []idempotency.Config{e.once()}, Handler: g.ServeHTTP})
	first := s.start(s.paying("x"))
	outer, inside := <-ctx, g.next()
	first.hangUp()
	context.AfterFunc(outer, func() { close(noticed) })
	await(e, "the server notices", noticed)
	if err := inside.ctx.Err(); err != nil {
		e.Errorf("the handler's context has ended: %v", err)
	}
	inside.leave()
	if o := e.outcome(); !o.Ran || o.Err != nil {
		e.Errorf("the outcome is %+v", o)
	}
	e.wantErr("the context of a handler that has returned", inside.ctx.Err(), context.Canceled)
	a := s.pay("x")
	a.want(e, 200, "done")
	if a.header.Get("Idempotent-Replayed") != "true" {
		e.Errorf("the answer is not a replay: %v", a.header)
	}
	g.wantRuns(1)
}

func onceClientLeavesQueue(e *env) {
	g := e.gate()
	s := e.serveOnce(g.ServeHTTP, repeatsWait)
	first := s.start(s.paying("x"))
	inside := g.next()
	second := s.start(s.paying("x"))
	e.eventually("the repeat waits", func() bool { return e.locks.Stats().Waiting == 1 })
	second.hangUp()
	if o := e.outcome(); o.Status != 499 {
		e.Errorf("the outcome is %+v, want status 499", o)
	}
	inside.leave()
	first.answer().wantOwn(e, 200, "done")
	g.wantRuns(1)
}

// onceDeadline has outer middleware that sets a deadline.
func onceDeadline(e *env) {
	ends := make(chan context.CancelFunc, 1)
	s := e.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
			defer cancel()
			ctx, end := context.WithCancelCause(ctx)
			ends <- func() { end(errExploded) }
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}), Route{Pattern: orders, Once: []idempotency.Config{e.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if left, ok := r.Context().Deadline(); !ok || time.Until(left) > time.Hour {
			e.Errorf("the deadline is %v, %v", left, ok)
		}
		end := <-ends
		end()
		await(e, "the handler's context ends", r.Context().Done())
		e.wantErr("its cause", context.Cause(r.Context()), errExploded)
		w.WriteHeader(http.StatusGatewayTimeout)
	}})
	s.pay("x").wantOwn(e, 504, "")
}

// holdsKeyFor is a short MaxHold.
func holdsKeyFor(cfg *idempotency.Config) { cfg.MaxHold = 50 * time.Millisecond }

// onceMaxHold shows that an answer below 400 is stored after MaxHold like any other.
func onceMaxHold(e *env) {
	var runs atomic.Int64
	handle := func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		await(e, "the handler's context ends", r.Context().Done())
		e.wantErr("its cause", context.Cause(r.Context()), guard.ErrMaxHold)
		if n := e.locks.Stats().Renewals; n != 0 {
			e.Errorf("%d keys are still renewed", n)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		status := http.StatusOK
		if r.Header.Get("X-Fail") != "" {
			status = http.StatusGatewayTimeout
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "held too long")
	}
	// FingerprintNone leaves the body to the handler.
	for _, fingerprint := range []idempotency.Fingerprint{idempotency.FingerprintBody, idempotency.FingerprintNone} {
		runs.Store(0)
		s := e.serveOnce(handle, holdsKeyFor, func(cfg *idempotency.Config) { cfg.Fingerprint = fingerprint })
		for range 2 {
			s.pay("x", with("X-Fail", "yes")).wantOwn(e, 504, "held too long")
		}
		first := s.pay("x")
		first.wantOwn(e, 200, "held too long")
		s.pay("x").wantReplay(e, first)
		if runs.Load() != 3 {
			e.Errorf("the handler ran %d times, want 3", runs.Load())
		}
		e.rdb.Del(background, e.record())
	}
}

// onceInterrupted has a handler that only returns when its context ends. What it has done is
// unknown, so its empty answer is not recorded: a repeat runs again, or gets 409 with
// OutcomeRefuse.
func onceInterrupted(e *env) {
	var runs atomic.Int64
	handle := func(_ http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			await(e, "the handler's context ends", r.Context().Done())
		}
	}
	s := e.serveOnce(handle, holdsKeyFor)
	s.pay("x")
	if o := e.wantNotStored(1); o.Status != 0 || !errors.Is(o.Err, guard.ErrMaxHold) {
		e.Errorf("the outcome is %+v, want no status and ErrMaxHold", o)
	}
	again := s.pay("x")
	again.wantOwn(e, 200, "")
	s.pay("x").wantReplay(e, again)
	e.rdb.Del(background, e.record())

	runs.Store(0)
	s = e.serveOnce(handle, holdsKeyFor, refuses)
	s.pay("x")
	s.pay("x").wantProblem(e, 409, "outcome-unknown", "")
	if runs.Load() != 1 {
		e.Errorf("the handler ran %d times, want once", runs.Load())
	}
	e.rdb.Del(background, e.record())
}

// onceMaxHoldLost has a handler that ignores the end of its context. It loses its key, and a repeat
// runs beside it.
func onceMaxHoldLost(e *env) {
	g := e.gate()
	g.most = 2
	s := e.serveOnce(g.ServeHTTP, holdsKeyFor)
	first := s.start(s.paying("x"))
	slow := g.next()
	name := e.onceLockName()
	e.eventually("the lease is over", func() bool { return e.rdb.Exists(background, name).Val() == 0 })
	second := s.start(s.paying("x"))
	g.next().leave()
	done := second.answer()
	done.wantOwn(e, 200, "done")
	e.outcome()
	slow.leave()
	first.answer().wantOwn(e, 200, "done")
	e.wantErr("the loss", e.wantNotStored(0).Err, core.ErrLockLost)
	s.pay("x").wantReplay(e, done)
	g.wantRuns(2)
}

func onceTooMany(e *env) {
	g := e.gate()
	s := e.serveOnce(g.ServeHTTP, repeatsWait, func(cfg *idempotency.Config) { cfg.MaxWaiters = 1 })
	first := s.start(s.paying("x"))
	inside := g.next()
	second := s.start(s.paying("x"))
	e.eventually("a repeat waits", func() bool { return e.locks.Stats().Waiting == 1 })
	s.pay("x").wantProblem(e, 503, "queue-full", "1")
	inside.leave()
	first.answer().wantOwn(e, 200, "done")
	second.answer().want(e, 200, "done")
	g.wantRuns(1)
}

// wantNotStored waits for the outcome of a run whose result is not stored, and checks the log.
func (e *env) wantNotStored(lines int) guard.Outcome {
	e.Helper()
	o := e.outcome()
	if !o.Ran || !errors.Is(o.Err, idempotency.ErrNotStored) {
		e.Errorf("the outcome is %+v, want Err %v", o, idempotency.ErrNotStored)
	}
	if n := e.log.count("is not stored"); n != lines {
		e.Errorf("%d log lines say that the result is not stored, want %d: %s", n, lines, e.log.text())
	}
	return o
}

// onceStoreRefused has a Redis without memory for the record. The client gets its answer, and the
// key is free after the lease.
func onceStoreRefused(e *env) {
	refusing := make(chan *redistest.Rule, 1)
	var runs atomic.Int64
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			refusing <- e.proxy.OnEvery(isScript, redistest.ReplyWith(outOfMemory))
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	}, func(cfg *idempotency.Config) { cfg.LeaseTime = 4 * time.Second })
	s.pay("x").wantOwn(e, 201, "paid")
	e.wantNotStored(1)
	e.eventually("the lease is over", func() bool {
		return len(e.rdb.Keys(background, "reqlock:*").Val()) == 0 && e.locks.Stats().Cleanups == 0
	})
	(<-refusing).Remove()
	again := s.pay("x")
	again.wantOwn(e, 201, "paid")
	s.pay("x").wantReplay(e, again)
}

func onceRedisSilent(e *env) {
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		e.proxy.Stall()
		_, _ = io.WriteString(w, "done")
	})
	first := s.pay("x")
	first.wantOwn(e, 200, "done")
	e.wantNotStored(1)
	e.proxy.Restore()
	e.eventually("the record is left in the background", func() bool { return len(e.records()) == 1 })
	e.redisIsBack(s)
	s.pay("x").wantReplay(e, first)
}

// redisIsBack repeats a request until a connection to Redis works.
func (e *env) redisIsBack(s *site) {
	e.Helper()
	e.eventually("Redis is asked again", func() bool { return s.pay("x").status != http.StatusServiceUnavailable })
}

func onceRedisSilentRefuse(e *env) {
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		e.proxy.Stall()
		_, _ = io.WriteString(w, "done")
	}, refuses, func(cfg *idempotency.Config) { cfg.LeaseTime = 5 * time.Second })
	s.pay("x").wantOwn(e, 200, "done")
	e.wantNotStored(1)
	e.eventually("the lease is over", func() bool { return e.locks.Stats().Cleanups == 0 })
	e.proxy.Restore()
	e.redisIsBack(s)
	s.pay("x").wantProblem(e, 409, "outcome-unknown", "")
}

func onceRedisDown(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP)
	e.replyToScripts(outOfMemory)
	s.pay("x").wantProblem(e, 503, "backend-unavailable", "1")
	c.want(e, 0)
}

func onceFailsOpen(e *env) {
	c := &counter{}
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if got, ok := idempotency.KeyFrom(r.Context()); !ok || got != key {
			e.Errorf("KeyFrom: %q, %v", got, ok)
		}
		c.ServeHTTP(w, r)
	}, func(cfg *idempotency.Config) { cfg.FailOpen = true })
	first := s.pay("x")
	first.wantOwn(e, 201, "1 x")
	s.pay("x").wantReplay(e, first)
	// A request must not fail open through an error that it can cause.
	s.pay("y").wantProblem(e, 422, "key-reused", "")
	e.outcomesOf(3)
	e.replyToScripts(outOfMemory)
	s.pay("x").wantOwn(e, 201, "2 x")
	if o := e.outcome(); !o.FailedOpen || o.Err == nil {
		e.Errorf("the outcome is %+v", o)
	}
}

// onceOvertaken pauses the first run for longer than its lease. The record of the second run stays.
func onceOvertaken(e *env) {
	first, release := make(chan context.Context), make(chan struct{})
	var runs atomic.Int64
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) > 1 {
			_, _ = io.WriteString(w, "second")
			return
		}
		first <- r.Context()
		await(e, "the second run has ended", release)
		_, _ = io.WriteString(w, "first")
	}, repeatsWait, func(cfg *idempotency.Config) { cfg.LeaseTime = 4 * time.Second })
	p := s.start(s.paying("x"))
	ctx := await(e, "the handler runs", first)
	name := e.onceLockName()
	await(e, "the handler's context ends", ctx.Done())
	e.wantErr("its cause", context.Cause(ctx), core.ErrLockLost)
	e.becomesFree(name) // a request that waits for the first run does not run
	second := s.pay("x")
	second.wantOwn(e, 200, "second")
	e.outcome()
	close(release)
	p.answer().wantOwn(e, 200, "first")
	e.wantErr("the loss", e.wantNotStored(0).Err, core.ErrLockLost)
	if e.log.count("was lost while the handler ran") != 1 {
		e.Errorf("the log does not say that the lock was lost: %s", e.log.text())
	}
	s.pay("x").wantReplay(e, second)
}

func onceLostRefuse(e *env) {
	g := e.gate()
	s := e.serveOnce(g.ServeHTTP, refuses)
	first := s.start(s.paying("x"))
	inside := g.next()
	s.pay("x").wantProblem(e, 409, "locked", "1")
	s.pay("y").wantProblem(e, 422, "key-reused", "")
	e.rdb.Del(background, e.onceLockName())
	inside.leave()
	first.answer().wantOwn(e, 200, "done")
	s.pay("x").wantProblem(e, 409, "outcome-unknown", "")
	s.pay("y").wantProblem(e, 422, "key-reused", "")
	g.wantRuns(1)
}

// badAnswers are runs after which a repeat runs.
var badAnswers = map[string]http.HandlerFunc{
	"502":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
	"401":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
	"429":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) },
	"panic": endingsBadly[0],
}

// heldRun serves a handler whose first run ends as given when out is closed. Later runs are counted,
// and answer 201.
func (e *env) heldRun(end http.HandlerFunc, changes ...func(*idempotency.Config)) (s *site, runs *atomic.Int64, out chan struct{}) {
	runs, out = new(atomic.Int64), make(chan struct{})
	s = e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			await(e, "the first run may end", out)
			end(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}, changes...)
	return s, runs, out
}

// onceBinds shows that a key belongs to its first request from the moment that it runs, whatever
// becomes of the run. It does not if the handler says that nothing was done.
func onceBinds(e *env) {
	for _, change := range []func(*idempotency.Config){func(*idempotency.Config) {}, repeatsWait} {
		for what, end := range badAnswers {
			s, runs, out := e.heldRun(end, change)
			first := s.start(s.paying("50"))
			e.eventually("the first runs", func() bool { return runs.Load() == 1 })
			s.pay("70").wantProblem(e, 422, "key-reused", "")
			close(out)
			await(e, "the first has ended", first.result)
			e.outcomesOf(2)
			s.pay("70").wantProblem(e, 422, "key-reused", "")
			if runs.Load() != 1 {
				e.Errorf("%s: the handler ran %d times, want once", what, runs.Load())
			}
			done := s.pay("50")
			done.wantOwn(e, 201, "")
			s.pay("50").wantReplay(e, done)
			s.pay("70").wantProblem(e, 422, "key-reused", "")
			e.outcomesOf(4)
			e.forgetKeys()
		}
	}
	var runs atomic.Int64
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			idempotency.Outcome(r.Context()).NothingDone()
			w.WriteHeader(400)
			return
		}
		w.WriteHeader(201)
	})
	s.pay("50").wantOwn(e, 400, "")
	s.pay("70").wantOwn(e, 201, "")
	s.pay("50").wantProblem(e, 422, "key-reused", "")
}

// onceHerd shows that a run that fails does not run again for each of those who wait for it. They are
// told so, and the next request runs.
func onceHerd(e *env) {
	const n = 100
	for what, end := range badAnswers {
		s, runs, out := e.heldRun(end, repeatsWait)
		var all []*pending
		first := s.start(s.paying("50"))
		e.eventually("the first runs", func() bool { return runs.Load() == 1 })
		for range n - 1 {
			all = append(all, s.start(s.paying("50")))
		}
		e.eventually("the repeats wait", func() bool { return e.locks.Stats().Waiting == n-1 })
		// One more round trip, so that the first of them has been refused.
		s.pay("50", with("Idempotency-Key", "another"))
		close(out)
		await(e, "the first has ended", first.result)
		for _, p := range all {
			p.answer().wantProblem(e, 409, "run-failed", "1")
		}
		if runs.Load() != 2 {
			e.Errorf("%s: the handler ran %d times, want once for each key", what, runs.Load())
		}
		done := s.pay("50")
		done.wantOwn(e, 201, "")
		s.pay("50").wantReplay(e, done)
		e.outcomesOf(n + 3)
		e.forgetKeys()
	}
}

// onceTooLargeForRedis has a Redis that refuses large values. The client gets its answer, and no
// repeat runs.
func onceTooLargeForRedis(e *env) {
	e.rdb.ConfigSet(background, "proto-max-bulk-len", "1mb")
	for _, change := range []func(*idempotency.Config){func(*idempotency.Config) {}, refuses} {
		var runs atomic.Int64
		s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			_, _ = io.WriteString(w, strings.Repeat("x", 2<<20))
		}, change, func(cfg *idempotency.Config) { cfg.MaxResponseBody = 4 << 20 })
		if a := s.pay("x"); a.status != 200 || len(a.body) != 2<<20 {
			e.Errorf("the answer is %d with %d bytes", a.status, len(a.body))
		}
		s.pay("x").wantProblem(e, 409, "not-replayable", "")
		if runs.Load() != 1 {
			e.Errorf("the handler ran %d times, want once", runs.Load())
		}
		e.outcomesOf(2)
		e.forgetKeys()
	}
}

func onceOtherRecords(e *env) {
	c := &counter{}
	s := e.serveOnce(c.ServeHTTP)
	s.pay("x").wantOwn(e, 201, "1 x")
	name := e.record()
	good := e.rdb.HGet(background, name, "record").Val()
	newer := []byte(good)
	newer[4]++
	for i, bad := range []string{string(newer), "rubbish", good[:20], good[:40]} {
		e.rdb.HSet(background, name, "record", bad)
		s.pay("x").wantProblem(e, 503, "record-unreadable", "1")
		if n := e.log.count("a record cannot be read"); n != i+1 {
			e.Errorf("%d lines in the log: %s", n, e.log.text())
		}
	}
	e.rdb.HSet(background, name, "record", good)
	s.pay("x").want(e, 201, "1 x")
	c.want(e, 1)
}

func onceGivenUp(e *env) {
	c := &counter{}
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User") == "detaches" {
			lease, ok := guard.Detach(r.Context())
			if !ok {
				e.Error("Detach found no lease")
				return
			}
			defer func() { _ = lease.Release(background) }()
		} else if err := guard.Release(r.Context()); err != nil {
			e.Errorf("Release: %v", err)
		}
		c.ServeHTTP(w, r)
	})
	for i, user := range []string{"releases", "detaches"} {
		c.runs.Store(0)
		s.pay("x", with("X-User", user)).wantOwn(e, 201, "1 x")
		s.pay("x", with("X-User", user)).wantOwn(e, 201, "2 x")
		if got := e.outcomesOf(2); got["ran"] != 2 {
			e.Errorf("%d: the outcomes are %v", i, got)
		}
	}
}

func onceClosed(e *env) {
	g := e.gate()
	s := e.serveOnce(g.ServeHTTP)
	first := s.start(s.paying("x"))
	inside := g.next()
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(background, patience)
		defer cancel()
		closed <- e.locks.Close(ctx)
	}()
	e.eventually("the client is closing", func() bool {
		lease, err := e.locks.Lock("another").Acquire(background, core.AcquireOptions{})
		if err == nil {
			err = lease.Release(background)
		}
		return errors.Is(err, core.ErrClosed)
	})
	s.pay("x", with("Idempotency-Key", "another")).wantProblem(e, 503, "shutting-down", "1")
	inside.leave()
	first.answer().wantOwn(e, 200, "done")
	if err := await(e, "the client is closed", closed); err != nil {
		e.Errorf("Close: %v", err)
	}
	if len(e.records()) != 1 {
		e.Error("the result of the last run is lost")
	}
}
