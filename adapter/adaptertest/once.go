package adaptertest

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
)

// The tests of idempotency share once.go. onceruns.go tests that a key runs once; onceanswers.go,
// replays; oncewriters.go, the writer; oncefailures.go, failures; onceprocesses.go, processes that
// die; oncesealed.go, sealed records; oncekeys_test.go, keys, scopes and fingerprints, with one
// adapter.

// once returns a Config with the log and outcomes of the fixture. Its scope is the header X-User.
func (fx *fixture) once(changes ...func(*idempotency.Config)) idempotency.Config {
	fx.ends = append(fx.ends, func() { // records outlive the test otherwise
		fx.forgetKeys()
	})
	cfg := idempotency.Config{
		Scope:   func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil },
		Logger:  slog.New(slog.NewTextHandler(fx.log, nil)),
		Observe: fx.observe,
	}
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

// keptKeys returns the Redis keys of all that is kept: records, and what keys are bound to.
func (fx *fixture) keptKeys() []string {
	fx.Helper()
	names, err := fx.rdb.Keys(background, "*reqlock:idempotency:*:record").Result()
	if err != nil {
		fx.Error(err)
	}
	return names
}

// records returns the Redis keys of all records.
func (fx *fixture) records() (names []string) {
	fx.Helper()
	for _, name := range fx.keptKeys() {
		if fx.rdb.HExists(background, name, "record").Val() {
			names = append(names, name)
		}
	}
	return names
}

// forgetKeys deletes all records, what keys are bound to, and what counts towards quotas.
func (fx *fixture) forgetKeys() {
	fx.Helper()
	for _, name := range append(fx.keptKeys(), fx.rdb.Keys(background, "*reqlock:idempotency:*:counted").Val()...) {
		fx.rdb.Del(background, name)
	}
}

// record returns the Redis key of the only record.
func (fx *fixture) record() string {
	fx.Helper()
	names := fx.records()
	if len(names) != 1 {
		fx.Fatalf("there are %d records, want 1", len(names))
	}
	return names[0]
}

// onceLockName returns the name of the lock of the only run.
func (fx *fixture) onceLockName() string {
	fx.Helper()
	names, err := fx.rdb.Keys(background, "reqlock:idempotency:*").Result()
	if err != nil || len(names) != 1 {
		fx.Fatalf("locks %q (%v), want 1", names, err)
	}
	return names[0]
}

// serveOnce runs a server whose route orders, for all methods, is idempotent.
func (fx *fixture) serveOnce(handler http.HandlerFunc, change ...func(*idempotency.Config)) *testServer {
	return fx.serve(Route{Pattern: orders, Once: []idempotency.Config{fx.once(change...)}, Handler: handler})
}

// repeatsWait sets a WaitTime longer than any test.
func repeatsWait(cfg *idempotency.Config) { cfg.WaitTime = 3 * patience }

func refuses(cfg *idempotency.Config) { cfg.OnUnknown = idempotency.OutcomeRefuse }

// newRequestWithKey makes a request of anna's with the key of the tests.
func (s *testServer) newRequestWithKey(body string, changes ...func(*http.Request)) *http.Request {
	r := s.newRequest(http.MethodPost, order, strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-User", "anna")
	r.Header.Set("Content-Type", "application/json")
	for _, change := range changes {
		change(r)
	}
	return r
}

// postWithKey sends the request that newRequestWithKey returns.
func (s *testServer) postWithKey(body string, changes ...func(*http.Request)) answer {
	s.fx.Helper()
	return s.must(s.send(s.newRequestWithKey(body, changes...)))
}

// with sets a header.
func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// wantReplay fails the test unless the answer is a repetition of first: the same but for the date.
func (a answer) wantReplay(fx *fixture, first answer) {
	fx.Helper()
	want := first.header.Clone()
	want.Set("Idempotent-Replayed", "true")
	got := a.header.Clone()
	for _, h := range []http.Header{want, got} {
		h.Del("Date")
	}
	if a.err != nil || a.status != first.status || a.body != first.body {
		fx.Errorf("answer %d %.200q (%v), want %d %.200q again", a.status, a.body, a.err, first.status, first.body)
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		fx.Errorf("header\n%v, want\n%v", got, want)
	}
}

// wantOwn fails the test unless the handler gave this answer, and just now.
func (a answer) wantOwn(fx *fixture, status int, body string) {
	fx.Helper()
	a.want(fx, status, body)
	if got := a.header.Get("Idempotent-Replayed"); got != "" {
		fx.Errorf("the answer is a replay: %v", a.header)
	}
}

// A counter is a handler that answers with how often it has run, and with the body of the request.
type counter struct{ runs atomic.Int64 }

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if len(body) > 100 {
		body = body[len(body)-1:]
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%d %s", c.runs.Add(1), body)
}

func (c *counter) want(fx *fixture, n int64) {
	fx.Helper()
	if got := c.runs.Load(); got != n {
		fx.Errorf("the handler ran %d times, want %d", got, n)
	}
}

// outcomesOf counts the next n outcomes by their description.
func (fx *fixture) outcomesOf(n int) map[string]int {
	fx.Helper()
	counts := make(map[string]int)
	for range n {
		counts[describe(fx.outcome())]++
	}
	return counts
}

func describe(o guard.Outcome) string {
	switch {
	case o.FailedOpen:
		return "failed open"
	case !o.Ran:
		return fmt.Sprint(o.Status)
	case o.Err != nil:
		return "ran: " + o.Err.Error()
	}
	return "ran"
}
