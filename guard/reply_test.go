package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
)

// failing is a lock whose Acquire fails with err.
type failing struct{ err error }

func (f failing) Name() string { return "failing" }

func (f failing) Acquire(context.Context, core.AcquireOptions) (*core.Lease, error) {
	return nil, f.err
}

// earlier is an error that answers the request.
type earlier struct{ text string }

func (e earlier) Error() string { return "answered with " + e.text }

func (e earlier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprint(w, e.text, " to ", r.URL.Path)
}

// known is an earlier whose status is known.
type known struct{ earlier }

func (known) Status() int { return http.StatusAccepted }

func TestReply_OfLock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		status int // in the Outcome
	}{
		"status unknown": {earlier{"first"}, 0},
		"status known":   {known{earlier{"first"}}, http.StatusAccepted},
		"wrapped":        {fmt.Errorf("lock: %w", known{earlier{"first"}}), http.StatusAccepted},
		"beside a cause": {errors.Join(core.ErrNotAcquired, known{earlier{"first"}}), http.StatusAccepted},
	} {
		for way, cfg := range map[string]Config{
			"Config.Locker": {Key: keyfuncs.Path(), Locker: func(*http.Request, string) core.Locker { return failing{test.err} }},
			"Policy.Lock": {
				Policy: func(_ *http.Request, p *Policy) error { p.Lock = failing{test.err}; return nil },
				Locker: func(*http.Request, string) core.Locker { t.Error("Config.Locker was asked"); return nil },
			},
		} {
			var outcomes []Outcome
			cfg.FailOpen = true
			cfg.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) {
				t.Errorf("%s, %s: ErrorHandler got %v", name, way, err)
			}
			cfg.Observe = func(_ *http.Request, o Outcome) { outcomes = append(outcomes, o) }
			g, err := New(nil, cfg)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			g.Serve(w, httptest.NewRequest("GET", "/a", nil), func(http.ResponseWriter, *http.Request) {
				t.Errorf("%s, %s: the handler ran", name, way)
			})
			if w.Code != http.StatusAccepted || w.Body.String() != "first to /a" {
				t.Errorf("%s, %s: the answer is %d %q", name, way, w.Code, w.Body)
			}
			if len(outcomes) != 1 || outcomes[0].Ran || outcomes[0].FailedOpen || outcomes[0].Status != test.status || !errors.Is(outcomes[0].Err, test.err) {
				t.Errorf("%s, %s: the outcomes are %+v, want one with status %d", name, way, outcomes, test.status)
			}
		}
	}
}

func TestReply_OnlyOfLocks(t *testing.T) {
	t.Parallel()
	g, err := New(nil, Config{
		Key:    func(*http.Request) (string, error) { return "", known{earlier{"first"}} },
		Locker: func(*http.Request, string) core.Locker { return failing{} },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	g.Serve(w, httptest.NewRequest("GET", "/a", nil), nil)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), ProblemKeyInvalid) {
		t.Errorf("an http.Handler as a key function's error: the answer is %d %s", w.Code, w.Body)
	}
}

func TestPolicy_LockAndKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Policy)
		says   string
	}{
		"both":           {func(p *Policy) { p.Lock, p.Keys = failing{}, []string{"a"} }, "both Keys and Lock"},
		"neither":        {func(*Policy) {}, "neither Keys nor Lock nor Skip"},
		"a Mode":         {func(p *Policy) { p.Lock, p.Mode = failing{}, ModeFair }, "Mode is Fair"},
		"no lease":       {func(p *Policy) { p.Lock = failing{} }, "neither a lease nor an error"},
		"a *guard.Error": {func(p *Policy) { p.Lock = failing{&Error{Status: 418, Title: "own"}} }, ""},
	} {
		var got error
		g, err := New(nil, Config{
			Policy:       func(_ *http.Request, p *Policy) error { test.change(p); return nil },
			Locker:       func(*http.Request, string) core.Locker { return nil },
			ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { got = err },
		})
		if err != nil {
			t.Fatal(err)
		}
		g.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil), nil)
		var e *Error
		switch {
		case !errors.As(got, &e):
			t.Errorf("%s: refused with %v, want an *Error", name, got)
		case test.says == "" && e.Status != 418:
			t.Errorf("%s: refused with %v", name, got)
		case test.says != "" && (e.Type != ProblemMisconfigured || !strings.Contains(e.Error(), test.says)):
			t.Errorf("%s: refused with %v, want %q", name, got, test.says)
		}
	}
}
