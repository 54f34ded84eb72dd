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
	{name: "once: a 502 after the lock was lost, with OutcomeRefuse", run: onceLateFailure, setup: []func(*setup){watchdogTimeout(4 * time.Second)}},
	{name: "once: answers after the context has ended", run: onceLateAnswers},
	{name: "once: a panic that outer middleware answers", run: oncePanicAnswered},
	{name: "once: the client hangs up", run: onceClientHangsUp},
	{name: "once: the client hangs up while it waits", run: onceClientLeavesQueue},
	{name: "once: a deadline ends the handler", run: onceDeadline},
	{name: "once: MaxHold", run: onceMaxHold},
	{name: "once: MaxHold ends a handler that answers nothing", run: onceInterrupted},
	{name: "once: MaxHold and a lease that expires", run: onceMaxHoldLost, setup: []func(*setup){watchdogTimeout(4 * time.Second)}},
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

func onceFails(fx *fixture) {
	for _, end := range endingsBadly {
		var runs atomic.Int64
		s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			if runs.Add(1) <= 2 {
				end(w, r)
			}
			_, _ = io.WriteString(w, "done")
		})
		for range 2 {
			if a := s.send(s.newRequestWithKey("x")); a.err == nil {
				fx.Errorf("the answer is %+v, want none", a)
			}
			fx.outcome() // the key is free now
			if names := fx.records(); len(names) > 0 {
				fx.Errorf("left in Redis: %q", names)
			}
		}
		first := s.postWithKey("x")
		first.wantOwn(fx, 200, "done")
		s.postWithKey("x").wantReplay(fx, first)
		fx.outcomesOf(2)
		fx.rdb.Del(background, fx.record())
	}
}

// onceFailsRefuse shows that a handler that does not return runs at most once with OutcomeRefuse,
// whatever it has said. The client does not resend by itself, as Go's does on a used connection.
func onceFailsRefuse(fx *fixture) {
	for _, end := range endingsBadly {
		for _, says := range []func(idempotency.Report){func(idempotency.Report) {}, idempotency.Report.NothingDone} {
			var runs atomic.Int64
			s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				says(idempotency.Outcome(r.Context()))
				end(w, r)
			}, refuses)
			_ = s.send(s.newRequestWithKey("x"))
			fx.outcome() // the key is free now
			s.postWithKey("x").wantProblem(fx, 409, "outcome-unknown", "")
			s.postWithKey("y").wantProblem(fx, 422, "key-reused", "")
			if runs.Load() != 1 {
				fx.Errorf("the handler ran %d times, want once", runs.Load())
			}
			fx.outcomesOf(2)
			fx.rdb.Del(background, fx.record())
		}
	}
}

// onceReports has handlers that say themselves what they did. It counts for more than the status.
func onceReports(fx *fixture) {
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
			s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
				test.says(idempotency.Outcome(r.Context()))
				w.WriteHeader(test.status)
				_, _ = fmt.Fprint(w, runs.Add(1))
			}, change)
			first := s.postWithKey("x")
			first.wantOwn(fx, test.status, "1")
			if test.kept {
				s.postWithKey("x").wantReplay(fx, first)
			} else {
				s.postWithKey("x").wantOwn(fx, test.status, "2")
			}
			fx.outcomesOf(2)
			fx.forgetKeys()
		}
	}
}

// onceDonePanics has a handler that is done when it panics. No repeat runs, even with OutcomeRerun.
func onceDonePanics(fx *fixture) {
	var runs atomic.Int64
	s := fx.serveOnce(func(_ http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		idempotency.Outcome(r.Context()).Done()
		panic(http.ErrAbortHandler)
	})
	_ = s.send(s.newRequestWithKey("x"))
	fx.outcome()
	s.postWithKey("x").wantProblem(fx, 409, "not-replayable", "")
	if runs.Load() != 1 {
		fx.Errorf("the handler ran %d times, want once", runs.Load())
	}
}

// onceLateFailure has a handler that answers 502 after it has lost its lock, or after MaxHold. With
// OutcomeRefuse, no repeat runs.
func onceLateFailure(fx *fixture) {
	for what, change := range map[string]func(*idempotency.Config){
		"lost": func(*idempotency.Config) {}, "MaxHold": holdsKeyFor,
	} {
		var runs atomic.Int64
		s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			if what == "lost" {
				fx.rdb.Del(background, fx.onceLockName())
			}
			mustReceive(fx, "the handler's context ends", r.Context().Done())
			w.WriteHeader(http.StatusBadGateway)
		}, refuses, change)
		s.postWithKey("x").want(fx, 502, "")
		fx.outcome()
		s.postWithKey("x").wantProblem(fx, 409, "outcome-unknown", "")
		if runs.Load() != 1 {
			fx.Errorf("%s: the handler ran %d times, want once", what, runs.Load())
		}
		fx.outcome()
		fx.rdb.Del(background, fx.record())
	}
}

// onceLateAnswers has a handler that answers the end of its context with 400, as one does that
// takes any error of reading for one of the client. A repeat runs again, or gets 409 with
// OutcomeRefuse. But a 201 is a result: the work is done.
func onceLateAnswers(fx *fixture) {
	var runs atomic.Int64
	handle := func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		status, err := strconv.Atoi(r.Header.Get("X-Late"))
		if err == nil {
			mustReceive(fx, "the handler's context ends", r.Context().Done())
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
	for what, s := range map[string]*testServer{
		"deadline":         fx.serveWith(deadline, Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: handle}),
		"deadline, Refuse": fx.serveWith(deadline, Route{Pattern: orders, Once: []idempotency.Config{fx.once(refuses)}, Handler: handle}),
		"MaxHold":          fx.serveOnce(handle, holdsKeyFor),
		"MaxHold, Refuse":  fx.serveOnce(handle, holdsKeyFor, refuses),
	} {
		runs.Store(0)
		want := int64(2)
		s.postWithKey("x", with("X-User", what), with("X-Late", "400")).wantOwn(fx, 400, "")
		if strings.HasSuffix(what, "Refuse") {
			want = 1
			s.postWithKey("x", with("X-User", what)).wantProblem(fx, 409, "outcome-unknown", "")
		} else {
			again := s.postWithKey("x", with("X-User", what))
			again.wantOwn(fx, 200, "")
			s.postWithKey("x", with("X-User", what)).wantReplay(fx, again)
		}
		if runs.Load() != want {
			fx.Errorf("%s: the handler ran %d times, want %d", what, runs.Load(), want)
		}
		done := s.postWithKey("x", with("X-User", what+", done"), with("X-Late", "201"))
		done.wantOwn(fx, 201, "")
		s.postWithKey("x", with("X-User", what+", done")).wantReplay(fx, done)
	}
}

func oncePanicAnswered(fx *fixture) {
	caught, stacks := make(chan any, 1), make(chan string, 1)
	s := fx.serveWith(recovering(caught, stacks, func() {}), Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: explode})
	s.postWithKey("x").wantOwn(fx, 500, "")
	if p := mustReceive(fx, "the middleware recovers", caught); p != errExploded {
		fx.Errorf("the middleware recovered %v", p)
	}
	if stack := mustReceive(fx, "the middleware recovers", stacks); !strings.Contains(stack, "adaptertest.explode(") {
		fx.Errorf("the stack does not show the handler:\n%s", stack)
	}
	s = fx.serveWith(recovering(caught, stacks, func() {}), Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "begun")
		panic(errExploded)
	}})
	// The client gets what it would get without a recorder.
	s.postWithKey("x").wantOwn(fx, 201, "begun")
	mustReceive(fx, "the middleware recovers", caught)
	mustReceive(fx, "the middleware recovers", stacks)
	if names := fx.records(); len(names) > 0 {
		fx.Errorf("left in Redis: %q", names)
	}
}

func onceClientHangsUp(fx *fixture) {
	g := fx.newBlockingHandler()
	ctx, noticed := make(chan context.Context, 2), make(chan struct{})
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx <- r.Context()
			next.ServeHTTP(w, r)
		})
	}), Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: g.ServeHTTP})
	first := s.start(s.newRequestWithKey("x"))
	outer, inside := <-ctx, g.nextRun()
	first.disconnect()
	context.AfterFunc(outer, func() { close(noticed) })
	mustReceive(fx, "the server notices", noticed)
	if err := inside.ctx.Err(); err != nil {
		fx.Errorf("the handler's context has ended: %v", err)
	}
	inside.finish()
	if o := fx.outcome(); !o.Ran || o.Err != nil {
		fx.Errorf("the outcome is %+v", o)
	}
	fx.wantErr("the context of a handler that has returned", inside.ctx.Err(), context.Canceled)
	a := s.postWithKey("x")
	a.want(fx, 200, "done")
	if a.header.Get("Idempotent-Replayed") != "true" {
		fx.Errorf("the answer is not a replay: %v", a.header)
	}
	g.wantRuns(1)
}

func onceClientLeavesQueue(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOnce(g.ServeHTTP, repeatsWait)
	first := s.start(s.newRequestWithKey("x"))
	inside := g.nextRun()
	second := s.start(s.newRequestWithKey("x"))
	fx.eventually("the repeat waits", func() bool { return fx.locks.Stats().Waiting == 1 })
	second.disconnect()
	if o := fx.outcome(); o.Status != 499 {
		fx.Errorf("the outcome is %+v, want status 499", o)
	}
	inside.finish()
	first.mustGetAnswer().wantOwn(fx, 200, "done")
	g.wantRuns(1)
}

// onceDeadline has outer middleware that sets a deadline.
func onceDeadline(fx *fixture) {
	ends := make(chan context.CancelFunc, 1)
	s := fx.serveWith(around(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
			defer cancel()
			ctx, end := context.WithCancelCause(ctx)
			ends <- func() { end(errExploded) }
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}), Route{Pattern: orders, Once: []idempotency.Config{fx.once()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if left, ok := r.Context().Deadline(); !ok || time.Until(left) > time.Hour {
			fx.Errorf("the deadline is %v, %v", left, ok)
		}
		end := <-ends
		end()
		mustReceive(fx, "the handler's context ends", r.Context().Done())
		fx.wantErr("its cause", context.Cause(r.Context()), errExploded)
		w.WriteHeader(http.StatusGatewayTimeout)
	}})
	s.postWithKey("x").wantOwn(fx, 504, "")
}

// holdsKeyFor is a short MaxHold.
func holdsKeyFor(cfg *idempotency.Config) { cfg.MaxHold = 50 * time.Millisecond }

// onceMaxHold shows that an answer below 400 is stored after MaxHold like any other.
func onceMaxHold(fx *fixture) {
	var runs atomic.Int64
	handle := func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		mustReceive(fx, "the handler's context ends", r.Context().Done())
		fx.wantErr("its cause", context.Cause(r.Context()), guard.ErrMaxHold)
		if n := fx.locks.Stats().Renewals; n != 0 {
			fx.Errorf("%d keys are still renewed", n)
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
		s := fx.serveOnce(handle, holdsKeyFor, func(cfg *idempotency.Config) { cfg.Fingerprint = fingerprint })
		for range 2 {
			s.postWithKey("x", with("X-Fail", "yes")).wantOwn(fx, 504, "held too long")
		}
		first := s.postWithKey("x")
		first.wantOwn(fx, 200, "held too long")
		s.postWithKey("x").wantReplay(fx, first)
		if runs.Load() != 3 {
			fx.Errorf("the handler ran %d times, want 3", runs.Load())
		}
		fx.rdb.Del(background, fx.record())
	}
}

// onceInterrupted has a handler that only returns when its context ends. What it has done is
// unknown, so its empty answer is not recorded: a repeat runs again, or gets 409 with
// OutcomeRefuse.
func onceInterrupted(fx *fixture) {
	var runs atomic.Int64
	handle := func(_ http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			mustReceive(fx, "the handler's context ends", r.Context().Done())
		}
	}
	s := fx.serveOnce(handle, holdsKeyFor)
	s.postWithKey("x")
	if o := fx.wantNotStored(1); o.Status != 0 || !errors.Is(o.Err, guard.ErrMaxHold) {
		fx.Errorf("the outcome is %+v, want no status and ErrMaxHold", o)
	}
	again := s.postWithKey("x")
	again.wantOwn(fx, 200, "")
	s.postWithKey("x").wantReplay(fx, again)
	fx.rdb.Del(background, fx.record())

	runs.Store(0)
	s = fx.serveOnce(handle, holdsKeyFor, refuses)
	s.postWithKey("x")
	s.postWithKey("x").wantProblem(fx, 409, "outcome-unknown", "")
	if runs.Load() != 1 {
		fx.Errorf("the handler ran %d times, want once", runs.Load())
	}
	fx.rdb.Del(background, fx.record())
}

// onceMaxHoldLost has a handler that ignores the end of its context. It loses its key, and a repeat
// runs beside it.
func onceMaxHoldLost(fx *fixture) {
	g := fx.newBlockingHandler()
	g.most = 2
	s := fx.serveOnce(g.ServeHTTP, holdsKeyFor)
	first := s.start(s.newRequestWithKey("x"))
	slow := g.nextRun()
	name := fx.onceLockName()
	fx.eventually("the lease is over", func() bool { return fx.rdb.Exists(background, name).Val() == 0 })
	second := s.start(s.newRequestWithKey("x"))
	g.nextRun().finish()
	done := second.mustGetAnswer()
	done.wantOwn(fx, 200, "done")
	fx.outcome()
	slow.finish()
	first.mustGetAnswer().wantOwn(fx, 200, "done")
	fx.wantErr("the loss", fx.wantNotStored(0).Err, core.ErrLockLost)
	s.postWithKey("x").wantReplay(fx, done)
	g.wantRuns(2)
}

func onceTooMany(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOnce(g.ServeHTTP, repeatsWait, func(cfg *idempotency.Config) { cfg.MaxWaiters = 1 })
	first := s.start(s.newRequestWithKey("x"))
	inside := g.nextRun()
	second := s.start(s.newRequestWithKey("x"))
	fx.eventually("a repeat waits", func() bool { return fx.locks.Stats().Waiting == 1 })
	s.postWithKey("x").wantProblem(fx, 503, "queue-full", "1")
	inside.finish()
	first.mustGetAnswer().wantOwn(fx, 200, "done")
	second.mustGetAnswer().want(fx, 200, "done")
	g.wantRuns(1)
}

// wantNotStored waits for the outcome of a run whose result is not stored, and checks the log.
func (fx *fixture) wantNotStored(lines int) guard.Outcome {
	fx.Helper()
	o := fx.outcome()
	if !o.Ran || !errors.Is(o.Err, idempotency.ErrNotStored) {
		fx.Errorf("the outcome is %+v, want Err %v", o, idempotency.ErrNotStored)
	}
	if n := fx.log.count("is not stored"); n != lines {
		fx.Errorf("%d log lines say that the result is not stored, want %d: %s", n, lines, fx.log.text())
	}
	return o
}

// onceStoreRefused has a Redis without memory for the record. The client gets its answer, and the
// key is free after the lease.
func onceStoreRefused(fx *fixture) {
	refusing := make(chan *redistest.Rule, 1)
	var runs atomic.Int64
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			refusing <- fx.proxy.OnEvery(isScript, redistest.ReplyWith(outOfMemory))
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	}, func(cfg *idempotency.Config) { cfg.LeaseTime = 4 * time.Second })
	s.postWithKey("x").wantOwn(fx, 201, "paid")
	fx.wantNotStored(1)
	fx.eventually("the lease is over", func() bool {
		return len(fx.rdb.Keys(background, "reqlock:*").Val()) == 0 && fx.locks.Stats().Cleanups == 0
	})
	(<-refusing).Remove()
	again := s.postWithKey("x")
	again.wantOwn(fx, 201, "paid")
	s.postWithKey("x").wantReplay(fx, again)
}

func onceRedisSilent(fx *fixture) {
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		fx.proxy.Stall()
		_, _ = io.WriteString(w, "done")
	})
	first := s.postWithKey("x")
	first.wantOwn(fx, 200, "done")
	fx.wantNotStored(1)
	fx.proxy.Restore()
	fx.eventually("the record is left in the background", func() bool { return len(fx.records()) == 1 })
	fx.redisIsBack(s)
	s.postWithKey("x").wantReplay(fx, first)
}

// redisIsBack repeats a request until a connection to Redis works.
func (fx *fixture) redisIsBack(s *testServer) {
	fx.Helper()
	fx.eventually("Redis is asked again", func() bool { return s.postWithKey("x").status != http.StatusServiceUnavailable })
}

func onceRedisSilentRefuse(fx *fixture) {
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		fx.proxy.Stall()
		_, _ = io.WriteString(w, "done")
	}, refuses, func(cfg *idempotency.Config) { cfg.LeaseTime = 5 * time.Second })
	s.postWithKey("x").wantOwn(fx, 200, "done")
	fx.wantNotStored(1)
	fx.eventually("the lease is over", func() bool { return fx.locks.Stats().Cleanups == 0 })
	fx.proxy.Restore()
	fx.redisIsBack(s)
	s.postWithKey("x").wantProblem(fx, 409, "outcome-unknown", "")
}

func onceRedisDown(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP)
	fx.replyToScripts(outOfMemory)
	s.postWithKey("x").wantProblem(fx, 503, "backend-unavailable", "1")
	c.want(fx, 0)
}

func onceFailsOpen(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if got, ok := idempotency.KeyFrom(r.Context()); !ok || got != key {
			fx.Errorf("KeyFrom: %q, %v", got, ok)
		}
		c.ServeHTTP(w, r)
	}, func(cfg *idempotency.Config) { cfg.FailOpen = true })
	first := s.postWithKey("x")
	first.wantOwn(fx, 201, "1 x")
	s.postWithKey("x").wantReplay(fx, first)
	// A request must not fail open through an error that it can cause.
	s.postWithKey("y").wantProblem(fx, 422, "key-reused", "")
	fx.outcomesOf(3)
	fx.replyToScripts(outOfMemory)
	s.postWithKey("x").wantOwn(fx, 201, "2 x")
	if o := fx.outcome(); !o.FailedOpen || o.Err == nil {
		fx.Errorf("the outcome is %+v", o)
	}
}

// onceOvertaken pauses the first run for longer than its lease. The record of the second run stays.
func onceOvertaken(fx *fixture) {
	first, release := make(chan context.Context), make(chan struct{})
	var runs atomic.Int64
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) > 1 {
			_, _ = io.WriteString(w, "second")
			return
		}
		first <- r.Context()
		mustReceive(fx, "the second run has ended", release)
		_, _ = io.WriteString(w, "first")
	}, repeatsWait, func(cfg *idempotency.Config) { cfg.LeaseTime = 4 * time.Second })
	p := s.start(s.newRequestWithKey("x"))
	ctx := mustReceive(fx, "the handler runs", first)
	name := fx.onceLockName()
	mustReceive(fx, "the handler's context ends", ctx.Done())
	fx.wantErr("its cause", context.Cause(ctx), core.ErrLockLost)
	fx.eventuallyFree(name) // a request that waits for the first run does not run
	second := s.postWithKey("x")
	second.wantOwn(fx, 200, "second")
	fx.outcome()
	close(release)
	p.mustGetAnswer().wantOwn(fx, 200, "first")
	fx.wantErr("the loss", fx.wantNotStored(0).Err, core.ErrLockLost)
	if fx.log.count("was lost while the handler ran") != 1 {
		fx.Errorf("the log does not say that the lock was lost: %s", fx.log.text())
	}
	s.postWithKey("x").wantReplay(fx, second)
}

func onceLostRefuse(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOnce(g.ServeHTTP, refuses)
	first := s.start(s.newRequestWithKey("x"))
	inside := g.nextRun()
	s.postWithKey("x").wantProblem(fx, 409, "locked", "1")
	s.postWithKey("y").wantProblem(fx, 422, "key-reused", "")
	fx.rdb.Del(background, fx.onceLockName())
	inside.finish()
	first.mustGetAnswer().wantOwn(fx, 200, "done")
	s.postWithKey("x").wantProblem(fx, 409, "outcome-unknown", "")
	s.postWithKey("y").wantProblem(fx, 422, "key-reused", "")
	g.wantRuns(1)
}

// badAnswers are runs after which a repeat runs.
var badAnswers = map[string]http.HandlerFunc{
	"502":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
	"401":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
	"429":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) },
	"panic": endingsBadly[0],
}

// heldRun serves a handler whose first run ends as given when out is closed. Later runs are
// counted, and answer 201.
func (fx *fixture) heldRun(end http.HandlerFunc, changes ...func(*idempotency.Config)) (s *testServer, runs *atomic.Int64, out chan struct{}) {
	runs, out = new(atomic.Int64), make(chan struct{})
	s = fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			mustReceive(fx, "the first run may end", out)
			end(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}, changes...)
	return s, runs, out
}

// onceBinds shows that a key belongs to its first request from the moment that it runs, whatever
// becomes of the run. It does not if the handler says that nothing was done.
func onceBinds(fx *fixture) {
	for _, change := range []func(*idempotency.Config){func(*idempotency.Config) {}, repeatsWait} {
		for what, end := range badAnswers {
			s, runs, out := fx.heldRun(end, change)
			first := s.start(s.newRequestWithKey("50"))
			fx.eventually("the first runs", func() bool { return runs.Load() == 1 })
			s.postWithKey("70").wantProblem(fx, 422, "key-reused", "")
			close(out)
			mustReceive(fx, "the first has ended", first.result)
			fx.outcomesOf(2)
			s.postWithKey("70").wantProblem(fx, 422, "key-reused", "")
			if runs.Load() != 1 {
				fx.Errorf("%s: the handler ran %d times, want once", what, runs.Load())
			}
			done := s.postWithKey("50")
			done.wantOwn(fx, 201, "")
			s.postWithKey("50").wantReplay(fx, done)
			s.postWithKey("70").wantProblem(fx, 422, "key-reused", "")
			fx.outcomesOf(4)
			fx.forgetKeys()
		}
	}
	var runs atomic.Int64
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if runs.Add(1) == 1 {
			idempotency.Outcome(r.Context()).NothingDone()
			w.WriteHeader(400)
			return
		}
		w.WriteHeader(201)
	})
	s.postWithKey("50").wantOwn(fx, 400, "")
	s.postWithKey("70").wantOwn(fx, 201, "")
	s.postWithKey("50").wantProblem(fx, 422, "key-reused", "")
}

// onceHerd shows that a run that fails does not run again for each of those who wait for it. They
// are told so, and the next request runs.
func onceHerd(fx *fixture) {
	const n = 100
	for what, end := range badAnswers {
		s, runs, out := fx.heldRun(end, repeatsWait)
		var all []*pendingRequest
		first := s.start(s.newRequestWithKey("50"))
		fx.eventually("the first runs", func() bool { return runs.Load() == 1 })
		before := fx.asleep.Load()
		for range n - 1 {
			all = append(all, s.start(s.newRequestWithKey("50")))
		}
		fx.eventually("the repeats wait", func() bool { return fx.asleep.Load()-before == n-1 })
		close(out)
		mustReceive(fx, "the first has ended", first.result)
		for _, p := range all {
			p.mustGetAnswer().wantProblem(fx, 409, "run-failed", "1")
		}
		if runs.Load() != 1 {
			fx.Errorf("%s: the handler ran %d times, want once", what, runs.Load())
		}
		done := s.postWithKey("50")
		done.wantOwn(fx, 201, "")
		s.postWithKey("50").wantReplay(fx, done)
		fx.outcomesOf(n + 2)
		fx.forgetKeys()
	}
}

// onceTooLargeForRedis has a Redis that refuses large values. The client gets its answer, and no
// repeat runs.
func onceTooLargeForRedis(fx *fixture) {
	fx.rdb.ConfigSet(background, "proto-max-bulk-len", "1mb")
	for _, change := range []func(*idempotency.Config){func(*idempotency.Config) {}, refuses} {
		var runs atomic.Int64
		s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			_, _ = io.WriteString(w, strings.Repeat("x", 2<<20))
		}, change, func(cfg *idempotency.Config) { cfg.MaxResponseBody = 4 << 20 })
		if a := s.postWithKey("x"); a.status != 200 || len(a.body) != 2<<20 {
			fx.Errorf("the answer is %d with %d bytes", a.status, len(a.body))
		}
		s.postWithKey("x").wantProblem(fx, 409, "not-replayable", "")
		if runs.Load() != 1 {
			fx.Errorf("the handler ran %d times, want once", runs.Load())
		}
		fx.outcomesOf(2)
		fx.forgetKeys()
	}
}

func onceOtherRecords(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(c.ServeHTTP)
	s.postWithKey("x").wantOwn(fx, 201, "1 x")
	name := fx.record()
	good := fx.rdb.HGet(background, name, "record").Val()
	newer := []byte(good)
	newer[4]++
	for i, bad := range []string{string(newer), "rubbish", good[:20], good[:40]} {
		fx.rdb.HSet(background, name, "record", bad)
		s.postWithKey("x").wantProblem(fx, 503, "record-unreadable", "1")
		if n := fx.log.count("a record cannot be read"); n != i+1 {
			fx.Errorf("%d lines in the log: %s", n, fx.log.text())
		}
	}
	fx.rdb.HSet(background, name, "record", good)
	s.postWithKey("x").want(fx, 201, "1 x")
	c.want(fx, 1)
}

func onceGivenUp(fx *fixture) {
	c := &counter{}
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User") == "detaches" {
			lease, ok := guard.Detach(r.Context())
			if !ok {
				fx.Error("Detach found no lease")
				return
			}
			defer func() { _ = lease.Release(background) }()
		} else if err := guard.Release(r.Context()); err != nil {
			fx.Errorf("Release: %v", err)
		}
		c.ServeHTTP(w, r)
	})
	for i, user := range []string{"releases", "detaches"} {
		c.runs.Store(0)
		s.postWithKey("x", with("X-User", user)).wantOwn(fx, 201, "1 x")
		s.postWithKey("x", with("X-User", user)).wantOwn(fx, 201, "2 x")
		if got := fx.outcomesOf(2); got["ran"] != 2 {
			fx.Errorf("%d: the outcomes are %v", i, got)
		}
	}
}

func onceClosed(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOnce(g.ServeHTTP)
	first := s.start(s.newRequestWithKey("x"))
	inside := g.nextRun()
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(background, patience)
		defer cancel()
		closed <- fx.locks.Close(ctx)
	}()
	fx.eventually("the client is closing", func() bool {
		lease, err := fx.locks.Lock("another").Acquire(background, core.AcquireOptions{})
		if err == nil {
			err = lease.Release(background)
		}
		return errors.Is(err, core.ErrClosed)
	})
	s.postWithKey("x", with("Idempotency-Key", "another")).wantProblem(fx, 503, "shutting-down", "1")
	inside.finish()
	first.mustGetAnswer().wantOwn(fx, 200, "done")
	if err := mustReceive(fx, "the client is closed", closed); err != nil {
		fx.Errorf("Close: %v", err)
	}
	if len(fx.records()) != 1 {
		fx.Error("the result of the last run is lost")
	}
}
