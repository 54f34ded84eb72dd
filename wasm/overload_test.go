package wasm

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

func TestMaxInstances_LeavesAProcessor(t *testing.T) {
	t.Parallel()
	if got, want := (Config{}).withDefaults().MaxInstances, max(1, runtime.GOMAXPROCS(0)-1); got != want {
		t.Errorf("MaxInstances is %d by default, want %d", got, want)
	}
}

// MaxQueue requests wait for an instance; the next one is refused at once.
func TestMaxQueue(t *testing.T) {
	t.Parallel()
	over, end := context.WithCancel(context.Background())
	end() // so that a call that waits all the same returns, with another error
	for configured, longest := range map[int]int{-1: 0, 1: 1, 3: 3} {
		p := start(t, "c", Config{MaxInstances: 1, MaxQueue: configured})
		p.queue.slots <- struct{}{} // the only one
		waited := make(chan error, longest)
		for range longest {
			go func() { waited <- p.Policy(request("GET", "/", "", "acme"), new(guard.Policy)) }()
		}
		eventually(t, "the queue to fill", func() bool { return p.Stats().Queued == longest })
		var own *guard.Error
		err := p.Policy(request("GET", "/", "", "acme").WithContext(over), new(guard.Policy))
		if !errors.Is(err, ErrBusy) || !errors.As(err, &own) || own.Status != http.StatusServiceUnavailable || own.Type != guard.ProblemPluginBusy || own.RetryAfter != time.Second {
			t.Errorf("MaxQueue %d: %v", configured, err)
		}
		p.queue.leave()
		for range longest {
			if err := <-waited; err != nil {
				t.Errorf("MaxQueue %d: a call that waited: %v", configured, err)
			}
		}
		if s := p.Stats(); s.Queued != 0 || s.Running != 0 || s.Calls[OutcomeBusy] != 1 || s.Calls[OutcomeLocked] != uint64(longest) {
			t.Errorf("MaxQueue %d: %+v", configured, s)
		}
	}
}

// events records what an Observer receives.
type events struct {
	mu      sync.Mutex
	calls   []CallEvent
	breaker []BreakerEvent
	reloads []ReloadEvent
}

func (e *events) observer() Observer {
	return Observer{
		Called:   func(_ context.Context, c CallEvent) { e.mu.Lock(); e.calls = append(e.calls, c); e.mu.Unlock() },
		Breaker:  func(b BreakerEvent) { e.mu.Lock(); e.breaker = append(e.breaker, b); e.mu.Unlock() },
		Reloaded: func(r ReloadEvent) { e.mu.Lock(); e.reloads = append(e.reloads, r); e.mu.Unlock() },
	}
}

func (e *events) outcomes() []Outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []Outcome
	for _, c := range e.calls {
		list = append(list, c.Outcome)
	}
	return list
}

// A plugin that keeps trapping is suspended: its calls fail at once, until one succeeds after the
// pause. The log has one line for each change.
func TestSuspended(t *testing.T) {
	t.Parallel()
	var seen events
	log := &logged{}
	p := start(t, "c", Config{BreakAfter: 3, BreakFor: time.Hour, Observer: seen.observer(), Logger: slog.New(slog.NewTextHandler(log, nil))})
	p.current.breaker.least = 0
	for range 3 {
		if err := checkFault(p, "t", ErrTrap, ""); err != nil {
			t.Error(err)
		}
	}
	for range 5 {
		err := p.Policy(request("GET", "/", "", "acme"), new(guard.Policy))
		var own *guard.Error
		if !errors.Is(err, ErrSuspended) || !errors.As(err, &own) || own.Status != http.StatusServiceUnavailable || own.Type != guard.ProblemPluginFailed ||
			own.RetryAfter < 59*time.Minute || own.RetryAfter > time.Hour {
			t.Errorf("%v, %+v", err, own)
		}
	}
	if s := p.Stats(); s.Breaker != BreakerOpen || s.Instances != 0 || s.Calls[OutcomeSuspended] != 5 || s.Calls[OutcomeTrap] != 3 {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(log.String(), "\n"); n != 4 || strings.Count(log.String(), "the plugin keeps failing, suspending it") != 1 {
		t.Errorf("%d lines:\n%s", n, log)
	}

	p.current.breaker.mu.Lock()
	p.current.breaker.until = time.Now() // the pause is over
	p.current.breaker.mu.Unlock()
	if v := ask(t, p.Policy, request("GET", "/", "", "acme")); v.Policy.Keys == nil {
		t.Errorf("%+v", v)
	}
	if s := p.Stats(); s.Breaker != BreakerClosed || s.Instances != 1 {
		t.Errorf("%+v", s)
	}
	if strings.Count(log.String(), "the plugin works again") != 1 || strings.Count(log.String(), "\n") != 5 {
		t.Errorf("log:\n%s", log)
	}
	var states []BreakerState
	for _, e := range seen.breaker {
		states = append(states, e.State)
		if (e.State == BreakerOpen) != (e.Err != nil && e.Pause == time.Hour) || !strings.HasPrefix(e.Plugin, "sha256:") {
			t.Errorf("%+v", e)
		}
	}
	if want := []BreakerState{BreakerOpen, BreakerHalfOpen, BreakerClosed}; !reflect.DeepEqual(states, want) {
		t.Errorf("the breaker was %v, want %v", states, want)
	}
}

// Requests that the plugin refuses, or on which it sets no key, cost no instance and suspend
// nothing. Nor do those of clients that send too much.
func TestSuspended_NotByClients(t *testing.T) {
	t.Parallel()
	p := start(t, "c", Config{BreakAfter: 1, MaxBody: 10})
	p.current.breaker.least = 0
	for range 5 {
		for _, r := range []*http.Request{faulty("n"), request("GET", "/", ""), request("PUT", "/", strings.Repeat("x", 11), "acme")} {
			if err := p.Policy(r, new(guard.Policy)); err == nil || errors.Is(err, ErrSuspended) {
				t.Errorf("%v", err)
			}
		}
	}
	if s := p.Stats(); s.Calls[OutcomeNoKey] != 5 || s.Calls[OutcomeDenied] != 5 || s.Calls[OutcomeBody] != 5 || s.Breaker != BreakerClosed {
		t.Errorf("%+v", s)
	}
}

// A new version starts with a closed breaker.
func TestSuspended_UntilReload(t *testing.T) {
	t.Parallel()
	f := watchFile(t, binary(t, "c"))
	eventually(t, "the suspension", func() bool {
		if err := checkFault(f.Plugin, "t", ErrTrap, ""); err != nil {
			t.Error(err)
		}
		return f.Stats().Breaker == BreakerOpen
	})
	f.replace(keyed(t, "b"))
	f.awaitLog("new version of the plugin loaded", 1)
	if s := f.Stats(); f.keys() != "key-b" || s.Breaker != BreakerClosed || s.Reloads != 1 || s.Instances != 1 {
		t.Errorf("%+v", s)
	}
}

// noLocker fails the test if the guard asks for a lock.
func noLocker(t *testing.T) func(*http.Request, string) core.Locker {
	return func(*http.Request, string) core.Locker {
		t.Error("the guard asked for a lock")
		return nil
	}
}

// With FailOpen the handler runs without a lock after a fault of the plugin, and only then.
func TestFailOpen(t *testing.T) {
	t.Parallel()
	var seen events
	log := &logged{}
	p := start(t, "c", Config{FailOpen: true, BreakAfter: 2, BreakFor: time.Hour, MaxInstances: 1, MaxQueue: -1, MaxBody: 10, Observer: seen.observer(),
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	p.current.breaker.least = 0
	g, err := guard.New(nil, guard.Config{
		Policy: p.Policy,
		Logger: slog.New(slog.DiscardHandler),
		Locker: noLocker(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *http.Request) (ran bool, status int) {
		w := httptest.NewRecorder()
		g.Serve(w, r, func(http.ResponseWriter, *http.Request) { ran = true })
		return ran, w.Code
	}
	closed := map[string]struct {
		r      *http.Request
		status int
	}{
		"denied": {request("GET", "/", ""), 400},
		"large":  {request("PUT", "/", strings.Repeat("x", 11), "acme"), 413},
	}
	for name, c := range closed {
		if ran, status := send(c.r); ran || status != c.status {
			t.Errorf("%s: the handler ran: %v, status %d", name, ran, status)
		}
	}
	p.queue.slots <- struct{}{} // no instance is free, which is no fault of the plugin
	if ran, status := send(request("GET", "/", "", "acme")); ran || status != 503 {
		t.Errorf("busy: the handler ran: %v, status %d", ran, status)
	}
	p.queue.leave()

	faults := []string{"n", "q", "t", ""} // the last one finds the plugin suspended
	for _, letter := range faults {
		if ran, status := send(faulty(letter)); !ran || status != 200 {
			t.Errorf("fault %q: the handler ran: %v, status %d", letter, ran, status)
		}
	}
	if got := strings.Count(log.String(), "the plugin failed, running the handler without a lock"); got != len(faults) {
		t.Errorf("%d lines:\n%s", got, log)
	}
	if s := p.Stats(); s.FailedOpen != uint64(len(faults)) {
		t.Errorf("%+v", s)
	}
	for _, e := range seen.calls {
		if open := e.Outcome.fault(); e.FailedOpen != open || e.Err == nil {
			t.Errorf("%+v", e)
		}
	}
	if want := []Outcome{OutcomeNoKey, OutcomeInvalid, OutcomeTrap, OutcomeSuspended}; !reflect.DeepEqual(seen.outcomes()[3:], want) {
		t.Errorf("outcomes %v, want %v", seen.outcomes()[3:], want)
	}
}

// While 64 clients call a plugin that loops on every request, other requests of the process are
// answered: most of the clients are refused at once, because the plugin is suspended.
func TestLoopingPlugin_HurtsNoOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("loops on all processors but one for a second")
	}
	calm := health(t, 200)
	p := start(t, "wat", Config{Timeout: 50 * time.Millisecond, BreakFor: time.Hour})
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := p.Policy(faulty("l"), new(guard.Policy))
				if !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrSuspended) && !errors.Is(err, ErrBusy) {
					t.Error(err)
				}
				if errors.Is(err, ErrSuspended) {
					time.Sleep(time.Millisecond) // a client's next request takes a while to arrive
				}
			}
		})
	}
	eventually(t, "the plugin to loop", func() bool { return p.Stats().Running > 0 })
	looping := health(t, 200)
	eventually(t, "the plugin to be suspended", func() bool { return p.Stats().Breaker == BreakerOpen })
	suspended := health(t, 200)
	close(stop)
	clients.Wait()
	t.Logf("/health p50: %s alone, %s while the plugin loops, %s while it is suspended; %d timeouts, %d suspended",
		calm, looping, suspended, p.Stats().Calls[OutcomeTimeout], p.Stats().Calls[OutcomeSuspended])
	n, ran := p.Stats().Calls[OutcomeTimeout], uint64(p.cfg.MaxInstances)
	if most := max(10, uint64(minFailing/p.cfg.Timeout)) + 1; n < 10 || n > (most+1)*ran {
		t.Errorf("%d calls ran until their timeout, want 10 to %d", n, (most+1)*ran)
	}
	if looping > hurting || suspended > hurting {
		t.Errorf("/health took %s while the plugin looped, %s while it was suspended", looping, suspended)
	}
}

// Requests hardly notice that a new version compiles, even one that keeps the compiler busy for
// seconds: it has one processor, and gives it to requests where it can.
func TestReload_HurtsNoOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for seconds")
	}
	p := start(t, "c", Config{})
	run := func() { // one request that the plugin decides
		if err := p.Policy(request("POST", "/orders", "", "acme"), new(guard.Policy)); err != nil {
			t.Error(err)
		}
	}
	other := watchFile(t, keyed(t, "a"))
	calm := requests(t, 2000, run)
	other.replace(slow())
	eventually(t, "the compilation", func() bool { return len(compilations.current) == 1 })
	busy := requests(t, 2000, run)
	if len(compilations.current) == 0 {
		t.Error("the compilation ended before it was measured")
	}
	other.awaitLog("new version of the plugin failed to load", 1) // it traps
	t.Logf("p50 %s and p99 %s alone, p50 %s and p99 %s beside a compilation",
		at(calm, 50), at(calm, 99), at(busy, 50), at(busy, 99))
	if at(busy, 99) > hurting {
		t.Errorf("p99 of other requests is %s during a compilation, and %s without", at(busy, 99), at(calm, 99))
	}
}

// hurting is the time of a request that even a busy machine does not take without a cause.
const hurting = 300 * time.Millisecond

// health returns the median time of n requests to a server.
func health(t *testing.T, n int) time.Duration {
	t.Helper()
	return at(requests(t, n, func() {}), 50)
}

// requests returns the times of n requests to a server whose handler calls run, in ascending order.
func requests(t *testing.T, n int, run func()) []time.Duration {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { run() }))
	defer server.Close()
	times := make([]time.Duration, n)
	for i := range times {
		began := time.Now()
		response, err := server.Client().Get(server.URL + "/health")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times
}

// at returns a percentile of sorted times.
func at(times []time.Duration, percent int) time.Duration {
	return times[(len(times)-1)*percent/100]
}
