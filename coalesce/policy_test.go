package coalesce

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// byHeaders is a policy as a plugin may have it: what it says of locks does not count.
func byHeaders(r *http.Request, p *guard.Policy) error {
	if r.Header.Get("X-Denied") != "" {
		return &guard.Error{Status: http.StatusForbidden, Type: "about:blank", Title: "Forbidden"}
	}
	p.Keys, p.Skip = r.Header["X-Key"], r.Header.Get("X-Skip") != ""
	p.Mode, p.Fenced, p.Limit, p.LeaseTime = guard.ModeRead, true, 1, time.Minute
	if r.Header.Get("X-Impatient") != "" {
		p.WaitTime = 2 * time.Millisecond
	}
	return nil
}

// Requests share if a policy gives them the same keys, whatever their URL. It may refuse a request, let
// it run for itself, and say how long it waits.
func TestServe_Policy(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, Config{Policy: byHeaders})
	keys := func(keys ...string) func(*http.Request) { return func(r *http.Request) { r.Header["X-Key"] = keys } }
	first := s.begin(0, keys("a", "b"))
	if hold := s.locks[0].Holds()[0]; hold.Kind != "once" || hold.Lease != time.Minute {
		t.Errorf("the run has %+v, want a lease of a minute", hold)
	}
	second := s.get(0, keys("a", "b"), func(r *http.Request) { r.URL.Path, r.RequestURI = "/other", "/other" })
	s.gather(1)
	other := s.begin(0, keys("a"))
	skips := s.begin(0, keys("a", "b"), header("X-Skip", "1"))
	for range 3 {
		s.finish(write("7"))
	}
	for name, test := range map[string]struct {
		answer <-chan *httptest.ResponseRecorder
		shared bool
	}{"the run": {first, false}, "the same keys": {second, true}, "another key": {other, false}, "skip": {skips, false}} {
		if w := receive(t, name, test.answer); w.Code != 200 || w.Body.String() != "7" || isShared(w) != test.shared {
			t.Errorf("%s: %d %s, shared %v", name, w.Code, w.Body, isShared(w))
		}
	}
	for name, test := range map[string]struct {
		change func(*http.Request)
		status int
		says   string
	}{
		"denied":   {header("X-Denied", "1"), 403, "Forbidden"},
		"no keys":  {func(*http.Request) {}, 500, guard.ProblemMisconfigured},
		"an empty": {keys("a", ""), 400, guard.ProblemKeyMissing},
	} {
		if w := receive(t, name, s.get(0, test.change)); w.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, test.status)
		}
	}
	first = s.begin(0, keys("c"))
	if w := receive(t, "an answer", s.get(0, keys("c"), header("X-Impatient", "1"))); w.Code != 409 {
		t.Errorf("one that waits for 2ms: %d %s", w.Code, w.Body)
	}
	s.finish(write("7"))
	receive(t, "the run", first)
	eventually(t, "the locks are free", func() bool { return s.locks[0].Stats() == core.Stats{} })
}
