package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
)

func TestAcquireEnd(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	held := &core.NotAcquiredError{Name: "a"}
	stillHeld := func(ctx context.Context) error { return fmt.Errorf("%w: %w", core.ErrStillHeld, ctx.Err()) }
	for name, test := range map[string]struct {
		ctx   context.Context
		event core.Event
		want  End
	}{
		"granted":                      {t.Context(), core.Event{}, End{Outcome: Acquired}},
		"granted as the caller left":   {cancelled, core.Event{}, End{Outcome: Acquired}},
		"held, one attempt":            {t.Context(), core.Event{Err: held}, End{Outcome: Refused}},
		"held for all of WaitTime":     {t.Context(), core.Event{Err: held, WaitTime: time.Second}, End{Outcome: Timeout}},
		"held until the deadline":      {late, core.Event{Err: stillHeld(late), WaitTime: core.WaitForever}, End{Outcome: Timeout}},
		"no answer until the deadline": {late, core.Event{Err: late.Err()}, End{Outcome: Abandoned}},
		"held as the caller left":      {cancelled, core.Event{Err: stillHeld(cancelled)}, End{Outcome: Abandoned}},
		"a record":                     {t.Context(), core.Event{Err: core.ErrRecorded}, End{Outcome: Recorded}},
		"too many waiters":             {t.Context(), core.Event{Err: core.ErrTooManyWaiters}, End{Outcome: Refused, ErrorType: "too_many_waiters"}},
		"bound to something else":      {t.Context(), core.Event{Err: core.ErrBound}, End{Outcome: Refused, ErrorType: "bound"}},
		"a holder without a record":    {t.Context(), core.Event{Err: core.ErrUnrecorded}, End{Outcome: Refused, ErrorType: "unrecorded"}},
		"closed":                       {t.Context(), core.Event{Err: core.ErrClosed}, End{Outcome: Failed, ErrorType: "client_closed"}},
		"the wrong kind":               {t.Context(), core.Event{Err: core.ErrWrongKind}, End{Outcome: Failed, ErrorType: "wrong_kind"}},
		"Redis is down":                {t.Context(), core.Event{Err: errors.New("connection refused")}, End{Outcome: Failed, ErrorType: "redis"}},
	} {
		test.event.Kind, test.want.Kind = "lock", "lock"
		if got := AcquireEnd(test.ctx, test.event); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestHoldEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want End
	}{
		{nil, End{Outcome: Released}},
		{core.ErrLockLost, End{Outcome: Lost, ErrorType: "lock_lost"}},
		{core.ErrClosed, End{Outcome: Lost, ErrorType: "client_closed"}},
		{core.ErrNotReplicated, End{Outcome: Failed, ErrorType: "not_replicated"}},
		{errors.New("i/o timeout"), End{Outcome: Failed, ErrorType: "redis"}},
	} {
		if got := HoldEnd(core.Event{Err: test.err}); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.err, got, test.want)
		}
	}
}

func TestRequestProblem(t *testing.T) {
	t.Parallel()
	refusal := func(problem string) error { return fmt.Errorf("wrapped: %w", &guard.Error{Type: problem}) }
	for _, test := range []struct {
		outcome                        guard.Outcome
		problem, idempotency, andThere string
	}{
		{guard.Outcome{Ran: true}, "none", "ran", "none"},
		{guard.Outcome{Ran: true, FailedOpen: true, Err: errors.New("refused")}, "failed-open", "ran", "failed-open"},
		{guard.Outcome{Ran: true, Err: fmt.Errorf("%w; %w", guard.ErrMaxHold, core.ErrLockLost)}, "max-hold", "ran", "max-hold"},
		{guard.Outcome{Ran: true, Err: core.ErrLockLost}, "lock-lost", "ran", "lock-lost"},
		{guard.Outcome{Ran: true, Err: core.ErrClosed}, "lock-lost", "ran", "lock-lost"},
		{guard.Outcome{Ran: true, Err: errors.New("timeout")}, "release-failed", "ran", "release-failed"},
		{guard.Outcome{Err: refusal(guard.ProblemLocked)}, "locked", "refused", "locked"},
		{guard.Outcome{Err: refusal(guard.ProblemClientGone)}, "client-closed-request", "refused", "client-closed-request"},
		{guard.Outcome{Err: refusal("https://shop.example/problems/42")}, "other", "refused", "other"},
		{guard.Outcome{Err: idempotency.ErrReplayed}, "other", "replayed", "none"},
		{guard.Outcome{Ran: true, Err: fmt.Errorf("%w: %w", idempotency.ErrNotStored, core.ErrLockLost)}, "lock-lost", "not_stored", "lock-lost"},
	} {
		if got := RequestProblem(test.outcome); got != test.problem {
			t.Errorf("%+v: problem %q, want %q", test.outcome, got, test.problem)
		}
		if outcome, problem := Idempotency(test.outcome); outcome != test.idempotency || problem != test.andThere {
			t.Errorf("%+v: idempotency: %q and %q, want %q and %q", test.outcome, outcome, problem, test.idempotency, test.andThere)
		}
	}
}

func TestCoalesced(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		outcome       guard.Outcome
		want, problem string
	}{
		{guard.Outcome{Ran: true}, "ran", "none"},
		{guard.Outcome{Ran: true, FailedOpen: true, Err: errors.New("refused")}, "ran", "failed-open"},
		{guard.Outcome{Ran: true, Err: core.ErrLockLost}, "ran", "lock-lost"},
		{guard.Outcome{Err: coalesce.ErrShared}, "shared", "none"},
		{guard.Outcome{Ran: true, Err: fmt.Errorf("%w, %w", &coalesce.NotShared{Reason: "set-cookie"}, core.ErrLockLost)}, "not_shared", "set-cookie"},
		{guard.Outcome{Err: &guard.Error{Type: guard.ProblemWaitTimeout}}, "refused", "wait-timeout"},
	} {
		if got, problem := Coalesced(test.outcome); got != test.want || problem != test.problem {
			t.Errorf("%+v: %q and %q, want %q and %q", test.outcome, got, problem, test.want, test.problem)
		}
	}
}

func TestRouteOf(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"": "", "/orders/{id}": "/orders/{id}", "POST /orders/{id}": "/orders/{id}", "GET  shop.example/{path...}": "shop.example/{path...}",
	} {
		r := httptest.NewRequest("POST", "/orders/42", nil)
		r.Pattern = pattern
		if got := RouteOf(r); got != want {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}

// Every duration is counted once, whatever goroutine records it.
func TestDistribution(t *testing.T) {
	t.Parallel()
	var d Distribution
	took := []time.Duration{0, 500 * time.Microsecond, 500*time.Microsecond + 1, 2 * time.Second, 5 * time.Minute, time.Hour}
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 100 {
				for _, d1 := range took {
					d.Record(d1, nil)
				}
			}
		})
	}
	running.Wait()
	d.Record(time.Hour, &Exemplar{Duration: time.Hour})
	s := d.Snapshot()
	want := [buckets]uint64{0: 1600, 1: 800, 11: 800, 16: 800, 17: 801}
	if s.Counts != want || s.Count != 4801 {
		t.Errorf("counts %v (%d), want %v", s.Counts, s.Count, want)
	}
	var sum time.Duration
	for _, d1 := range took {
		sum += 800 * d1
	}
	if s.Sum != sum+time.Hour {
		t.Errorf("sum %s, want %s", s.Sum, sum+time.Hour)
	}
	if len(s.Exemplars) != 1 || s.Exemplars[0].Duration != time.Hour {
		t.Errorf("exemplars %v", s.Exemplars)
	}
}

// The application's own callbacks come first, and those that are missing are skipped.
func TestThen(t *testing.T) {
	t.Parallel()
	var calls []string
	note := func(who string) func(context.Context, core.Event) {
		return func(_ context.Context, e core.Event) { calls = append(calls, who+" "+e.Name) }
	}
	o := Then(core.Observer{Acquired: note("own"), Lost: note("own")}, core.Observer{Acquired: note("ours"), Released: note("ours")})
	o.Acquired(t.Context(), core.Event{Name: "acquired"})
	o.Released(t.Context(), core.Event{Name: "released"})
	o.Lost(t.Context(), core.Event{Name: "lost"})
	if want := []string{"own acquired", "ours acquired", "ours released", "own lost"}; !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
	if o.Waiting != nil || o.NotAcquired != nil {
		t.Error("there are callbacks of none")
	}
}

// Series that exist from the start have zeroes, and others appear when they are counted.
func TestRecorder(t *testing.T) {
	t.Parallel()
	var r Recorder
	o := r.Observer(core.Observer{})
	o.Acquired(t.Context(), core.Event{Kind: "fair", Waited: time.Second})
	o.NotAcquired(t.Context(), core.Event{Kind: "fair", Waited: time.Minute, Err: core.ErrClosed})
	o.Acquired(t.Context(), core.Event{Kind: "of the future", Waited: time.Second})
	req := httptest.NewRequest("POST", "/", nil)
	req.Pattern = "POST /pay"
	for range 3 {
		r.Observe(req, guard.Outcome{Ran: true})
	}
	r.WatchPlugin("p", calls{"trap": 7})

	got := make(map[string]float64)
	for m, points := range r.Collect() {
		for _, p := range points {
			var values []string
			for _, a := range p.Attributes {
				values = append(values, a.Value)
			}
			n := p.Value
			if p.Durations != nil {
				n = float64(p.Durations.Count)
			}
			got[m.Describe().Name+" "+strings.Join(values, ",")] = n
		}
	}
	for series, want := range map[string]float64{
		"reqlock.acquire.duration fair,acquired":            1,
		"reqlock.acquire.duration fair,error,client_closed": 1,
		"reqlock.acquire.duration of the future,acquired":   1,
		"reqlock.acquire.duration once,acquired":            0,
		"reqlock.hold.duration lock,released":               0,
		"reqlock.requests none,/pay":                        3,
		"reqlock.plugin.calls p,trap":                       7,
	} {
		if n, ok := got[series]; !ok || n != want {
			t.Errorf("%s: %v (%t), want %v", series, n, ok, want)
		}
	}
}

// A client's counters begin at 0, those of every class of errors included: increase() of Prometheus
// does not count what a series begins with, so an alert would miss the first outage.
func TestReadClient_Zeroes(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("../../core/internal/redisop/fault.go")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"reqlock.locks.lost", "reqlock.renewals.failed", "reqlock.pubsub.failures"}
	classes := regexp.MustCompile(`Class: +"(\w+)"`).FindAllStringSubmatch(string(code), -1)
	for _, class := range classes {
		want = append(want, "reqlock.redis.errors "+class[1])
	}
	if len(classes) < 15 {
		t.Errorf("only %d classes found", len(classes))
	}

	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	var r Recorder
	r.Watch("", locks)
	read := func() map[string]float64 {
		got := make(map[string]float64)
		for m, points := range r.Collect() {
			for _, p := range points {
				name := m.Describe().Name
				for _, a := range p.Attributes {
					name += " " + a.Value
				}
				got[name] = p.Value
			}
		}
		return got
	}
	got := read()
	for _, series := range want {
		if n, ok := got[series]; !ok || n != 0 {
			t.Errorf("%s: %v (%t), want 0", series, n, ok)
		}
	}
	if _, err := locks.Lock("a").Acquire(t.Context(), core.AcquireOptions{}); err == nil {
		t.Fatal("locked without Redis")
	}
	if n := read()["reqlock.redis.errors unreachable"]; n < 1 {
		t.Errorf("%v errors after one", n)
	}
}

type calls map[string]uint64

func (c calls) Calls() map[string]uint64 { return c }

// Every metric is described, and no two have one name.
func TestDescriptions(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, m := range All {
		d := m.Describe()
		if !strings.HasPrefix(d.Name, "reqlock.") || d.Unit == "" || !strings.HasSuffix(d.Help, ".") || len(d.Attributes) == 0 || names[d.Prometheus()] {
			t.Errorf("%d: %+v", m, d)
		}
		names[d.Prometheus()] = true
	}
	if len(bounds) != len(Bounds()) || !slices.IsSorted(bounds[:]) {
		t.Error("the bounds are not in order")
	}
}

// docs/guides/metrics.md has every attribute, and every value that does not come from elsewhere.
func TestReference(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/guides/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(kinds,
		[]string{Kind, Outcome, Problem, BatchSize, Client, Plugin, Lock, ErrorType, Route},
		[]string{Acquired, Refused, Timeout, Abandoned, Recorded, Failed, Released, Lost, Ran, Replayed, NotStored, RefusedRequest},
		[]string{NoProblem, FailedOpen, MaxHold, LockLost, ReleaseFailed, OtherProblem, "redis", "too_many_waiters"})
	for _, known := range errorTypes {
		want = append(want, known.name)
	}
	for _, name := range want {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/guides/metrics.md does not have `%s`", name)
		}
	}
}
