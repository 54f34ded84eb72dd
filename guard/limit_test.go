package guard_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// limits is a server of Redis with a client of its locks.
type limits struct {
	*testing.T
	rdb   *redis.Client
	locks *core.Client
}

func newLimits(t *testing.T) *limits {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	locks, err := core.New(rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &limits{t, rdb, locks}
}

func (l *limits) newGuard(change func(*guard.Config)) *guard.Guard {
	l.Helper()
	cfg := guard.Config{Key: keyfuncs.Const("k"), Limit: 2, Logger: slog.New(slog.DiscardHandler)}
	change(&cfg)
	g, err := guard.New(l.locks, cfg)
	if err != nil {
		l.Fatal(err)
	}
	return g
}

// serve sends a request through guards, the outermost first.
func serve(ctx context.Context, next http.HandlerFunc, guards ...*guard.Guard) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	for i := len(guards) - 1; i >= 0; i-- {
		g, inner := guards[i], next
		next = func(w http.ResponseWriter, r *http.Request) { g.Serve(w, r, inner) }
	}
	next(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	return w
}

// A stay is a request that is inside guards until leave is called.
type stay struct {
	entered chan *http.Request
	leave   func() *httptest.ResponseRecorder
}

// enter sends a request that stays.
func (l *limits) enter(guards ...*guard.Guard) *stay {
	s := &stay{entered: make(chan *http.Request, 1)}
	end, done := make(chan struct{}), make(chan *httptest.ResponseRecorder, 1)
	s.leave = sync.OnceValue(func() *httptest.ResponseRecorder { close(end); return <-done })
	go func() {
		done <- serve(l.Context(), func(w http.ResponseWriter, r *http.Request) { s.entered <- r; <-end }, guards...)
	}()
	l.Cleanup(func() { s.leave() })
	return s
}

const limitPatience = 20 * time.Second

// inside waits until the handler runs.
func (l *limits) inside(s *stay) *http.Request {
	l.Helper()
	select {
	case r := <-s.entered:
		return r
	case <-time.After(limitPatience):
		l.Fatal("timed out waiting until the handler runs")
		return nil
	}
}

func (l *limits) wantRefused(what string, w *httptest.ResponseRecorder, status int, problem string) {
	l.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), problem) {
		l.Errorf("%s: %d %s, want %d %s", what, w.Code, w.Body, status, problem)
	}
}

func mustNotRun(t *testing.T) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler runs beyond the limit") }
}

// Limit requests are inside, and the next one gets 429 with Retry-After: at once, after WaitTime,
// or at its deadline. When one leaves, the next one is inside.
func TestLimit(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	var outcome guard.Outcome
	g := l.newGuard(func(cfg *guard.Config) { cfg.RetryAfter = 1500 * time.Millisecond })
	brief := l.newGuard(func(cfg *guard.Config) {
		cfg.WaitTime, cfg.Observe = 20*time.Millisecond, func(_ *http.Request, o guard.Outcome) { outcome = o }
	})
	long := l.newGuard(func(cfg *guard.Config) { cfg.WaitTime = limitPatience })

	first, second := l.enter(g), l.enter(g)
	l.inside(first)
	r := l.inside(second)
	if lease, ok := guard.LeaseFrom(r.Context()); !ok || lease.Name() != "reqlock:%limit:2:k" {
		t.Errorf("LeaseFrom: %v, %v", lease, ok)
	}
	w := serve(t.Context(), mustNotRun(t), g)
	l.wantRefused("at once", w, 429, guard.ProblemLimit)
	if got := w.Header().Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After is %q", got)
	}
	l.wantRefused("after WaitTime", serve(t.Context(), mustNotRun(t), brief), 429, guard.ProblemLimit)
	var refusal *guard.Error
	if outcome.Ran || outcome.Status != 429 || outcome.Waited < 20*time.Millisecond || !errors.As(outcome.Err, &refusal) ||
		refusal.Type != guard.ProblemLimit || !errors.Is(outcome.Err, core.ErrNotAcquired) {
		t.Errorf("the outcome is %+v", outcome)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	l.wantRefused("at the deadline", serve(ctx, mustNotRun(t), long), 429, guard.ProblemLimit)

	third := l.enter(long)
	if w := first.leave(); w.Code != 200 {
		t.Errorf("the first gets %d %s", w.Code, w.Body)
	}
	l.inside(third)
	for _, s := range []*stay{second, third} {
		if w := s.leave(); w.Code != 200 {
			t.Errorf("another gets %d %s", w.Code, w.Body)
		}
	}
	if n, err := l.locks.Semaphore("reqlock:%limit:2:k", 2).Available(t.Context()); n != 2 || err != nil {
		t.Errorf("%d are free at the end, %v", n, err)
	}
}

// A lock, a limit, and another limit of the same key have nothing to do with each other. Guards with
// the same limit share it.
func TestLimit_Names(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	two, three := l.newGuard(func(*guard.Config) {}), l.newGuard(func(cfg *guard.Config) { cfg.Limit = 3 })
	lock := l.newGuard(func(cfg *guard.Config) { cfg.Limit = 0 })
	sameAsTwo := l.newGuard(func(cfg *guard.Config) { cfg.WaitTime = time.Millisecond })
	for _, g := range []*guard.Guard{two, three, lock, sameAsTwo} {
		l.inside(l.enter(g))
	}
	l.wantRefused("the limit of 2", serve(t.Context(), mustNotRun(t), two), 429, guard.ProblemLimit)
	l.wantRefused("the lock", serve(t.Context(), mustNotRun(t), lock), 409, guard.ProblemLocked)
	for range 2 {
		l.inside(l.enter(three))
	}
	l.wantRefused("the limit of 3", serve(t.Context(), mustNotRun(t), three), 429, guard.ProblemLimit)
	for name, kind := range map[string]string{"reqlock:k": "hash", "reqlock:%limit:2:k": "string", "reqlock:%limit:3:k": "string"} {
		if got := l.rdb.Type(t.Context(), name).Val(); got != kind {
			t.Errorf("%s is a %s in Redis, want %s", name, got, kind)
		}
	}
}

// A policy chooses a limit for each request. A limit that can never work is a mistake in the program:
// 500, and one line with what to change.
func TestLimit_OfPolicy(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	for name, test := range map[string]struct {
		change func(*guard.Policy)
		says   string // "": it works
	}{
		"the Config's": {func(*guard.Policy) {}, ""},
		"larger":       {func(p *guard.Policy) { p.Limit = 20 }, ""},
		"a lock":       {func(p *guard.Policy) { p.Limit, p.Mode = 0, guard.ModeRead }, ""},
		"one":          {func(p *guard.Policy) { p.Limit = 1 }, "Limit is 1, which is not a lock"},
		"negative":     {func(p *guard.Policy) { p.Limit = -1 }, "Limit is -1"},
		"with a Mode":  {func(p *guard.Policy) { p.Mode = guard.ModeRead }, "Mode is Read"},
		"fenced":       {func(p *guard.Policy) { p.Fenced = true }, "Fenced is set"},
		"with a Lock":  {func(p *guard.Policy) { p.Lock, p.Keys = l.locks.Lock("k"), nil }, "have it make a core.Semaphore"},
	} {
		var log strings.Builder
		g := l.newGuard(func(cfg *guard.Config) {
			cfg.Key, cfg.Policy = nil, func(_ *http.Request, p *guard.Policy) error {
				p.Keys = []string{"k"}
				test.change(p)
				return nil
			}
			cfg.FailOpen = true
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		for range 2 {
			ran := false
			w := serve(t.Context(), func(http.ResponseWriter, *http.Request) { ran = true }, g)
			if test.says == "" && (w.Code != 200 || !ran) {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			if test.says != "" && (w.Code != 500 || ran || !strings.Contains(w.Body.String(), guard.ProblemMisconfigured)) {
				t.Errorf("%s: %d %s, the handler ran: %v", name, w.Code, w.Body, ran)
			}
		}
		if lines := strings.Count(log.String(), "\n"); test.says == "" && lines > 0 || test.says != "" && (lines != 1 || !strings.Contains(log.String(), test.says)) {
			t.Errorf("%s: the log is %s", name, log.String())
		}
	}
}

// Routes that take a lock and a limit in two orders may wait for each other, but not for ever: a
// request gives up after its WaitTime, and the others run.
func TestLimit_AndLockInTwoOrders(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	limit := l.newGuard(func(cfg *guard.Config) { cfg.WaitTime = 100 * time.Millisecond })
	lock := l.newGuard(func(cfg *guard.Config) { cfg.Limit, cfg.WaitTime = 0, limitPatience })
	has := make(chan struct{}, 3)
	then := func(inner *guard.Guard, begin <-chan struct{}) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			has <- struct{}{}
			<-begin
			inner.Serve(w, r, func(http.ResponseWriter, *http.Request) {})
		}
	}
	permitsTaken, now := make(chan struct{}), make(chan struct{})
	close(now)
	locked, limited := make(chan *httptest.ResponseRecorder, 1), make(chan *httptest.ResponseRecorder, 2)
	go func() { locked <- serve(t.Context(), then(limit, permitsTaken), lock) }()
	<-has
	for range 2 {
		go func() { limited <- serve(t.Context(), then(lock, now), limit) }()
	}
	<-has
	<-has
	close(permitsTaken)
	l.wantRefused("the holder of the lock", <-locked, 429, guard.ProblemLimit)
	for range 2 {
		if w := <-limited; w.Code != 200 {
			t.Errorf("a holder of a permit gets %d %s", w.Code, w.Body)
		}
	}
}
