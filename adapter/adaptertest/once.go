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

// once returns a Config with the log and outcomes of the env. Its scope is the header X-User.
func (e *env) once(changes ...func(*idempotency.Config)) idempotency.Config {
	e.ends = append(e.ends, func() { // records outlive the test otherwise
		e.forgetKeys()
	})
	cfg := idempotency.Config{
		Scope:   func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil },
		Logger:  slog.New(slog.NewTextHandler(e.log, nil)),
		Observe: e.observe,
	}
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

// keptKeys returns the Redis keys of all that is kept: records, and what keys are bound to.
func (e *env) keptKeys() []string {
	e.Helper()
	names, err := e.rdb.Keys(background, "*reqlock:idempotency:*:record").Result()
	if err != nil {
		e.Error(err)
	}
	return names
}

// records returns the Redis keys of all records.
func (e *env) records() (names []string) {
	e.Helper()
	for _, name := range e.keptKeys() {
		if e.rdb.HExists(background, name, "record").Val() {
			names = append(names, name)
		}
	}
	return names
}

// forgetKeys deletes all records, what keys are bound to, and what counts towards quotas.
func (e *env) forgetKeys() {
	e.Helper()
	for _, name := range append(e.keptKeys(), e.rdb.Keys(background, "*reqlock:idempotency:*:counted").Val()...) {
		e.rdb.Del(background, name)
	}
}

// record returns the Redis key of the only record.
func (e *env) record() string {
	e.Helper()
	names := e.records()
	if len(names) != 1 {
		e.Fatalf("there are %d records, want 1", len(names))
	}
	return names[0]
}

// onceLockName returns the name of the lock of the only run.
func (e *env) onceLockName() string {
	e.Helper()
	names, err := e.rdb.Keys(background, "reqlock:idempotency:*").Result()
	if err != nil || len(names) != 1 {
		e.Fatalf("locks %q (%v), want 1", names, err)
	}
	return names[0]
}

// serveOnce runs a server whose route orders, for all methods, is idempotent.
func (e *env) serveOnce(handler http.HandlerFunc, change ...func(*idempotency.Config)) *site {
	return e.serve(Route{Pattern: orders, Once: []idempotency.Config{e.once(change...)}, Handler: handler})
}

// repeatsWait sets a WaitTime longer than any test.
func repeatsWait(cfg *idempotency.Config) { cfg.WaitTime = 3 * patience }

func refuses(cfg *idempotency.Config) { cfg.OnUnknown = idempotency.OutcomeRefuse }

// paying makes a request of anna's with the key of the tests.
func (s *site) paying(body string, changes ...func(*http.Request)) *http.Request {
	r := s.request(http.MethodPost, order, strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-User", "anna")
	r.Header.Set("Content-Type", "application/json")
	for _, change := range changes {
		change(r)
	}
	return r
}

// pay sends the request that paying returns.
func (s *site) pay(body string, changes ...func(*http.Request)) answer {
	s.e.Helper()
	return s.must(s.send(s.paying(body, changes...)))
}

// with sets a header.
func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// wantReplay fails the test unless the answer is a repetition of first: the same but for the date.
func (a answer) wantReplay(e *env, first answer) {
	e.Helper()
	want := first.header.Clone()
	want.Set("Idempotent-Replayed", "true")
	got := a.header.Clone()
	for _, h := range []http.Header{want, got} {
		h.Del("Date")
	}
	if a.err != nil || a.status != first.status || a.body != first.body {
		e.Errorf("answer %d %.200q (%v), want %d %.200q again", a.status, a.body, a.err, first.status, first.body)
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		e.Errorf("header\n%v, want\n%v", got, want)
	}
}

// wantOwn fails the test unless the handler gave this answer, and just now.
func (a answer) wantOwn(e *env, status int, body string) {
	e.Helper()
	a.want(e, status, body)
	if got := a.header.Get("Idempotent-Replayed"); got != "" {
		e.Errorf("the answer is a replay: %v", a.header)
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

func (c *counter) want(e *env, n int64) {
	e.Helper()
	if got := c.runs.Load(); got != n {
		e.Errorf("the handler ran %d times, want %d", got, n)
	}
}

// outcomesOf counts the next n outcomes by their description.
func (e *env) outcomesOf(n int) map[string]int {
	e.Helper()
	counts := make(map[string]int)
	for range n {
		counts[describe(e.outcome())]++
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
