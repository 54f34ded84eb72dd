package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
)

func TestWriteProblem(t *testing.T) {
	t.Parallel()
	own := &Error{Status: 422, Type: "urn:x", Title: "X", Detail: "d", RetryAfter: 1500 * time.Millisecond, Err: errors.New("secret")}
	for name, test := range map[string]struct {
		err    error
		status int
		typ    string
		retry  string
	}{
		"own":             {own, 422, "urn:x", "2"},
		"wrapped":         {fmt.Errorf("outer: %w", own), 422, "urn:x", "2"},
		"no retry":        {newError(ProblemKeyMissing, errors.New("secret")), 400, "urn:reqlock:problem:key-missing", ""},
		"another error":   {errors.New("secret"), 500, "urn:reqlock:problem:misconfigured", ""},
		"no error":        {nil, 500, "urn:reqlock:problem:misconfigured", ""},
		"no status":       {&Error{Title: "secret", RetryAfter: time.Second}, 500, "urn:reqlock:problem:misconfigured", ""},
		"no final status": {&Error{Status: 103}, 500, "urn:reqlock:problem:misconfigured", ""},
		"no such status":  {&Error{Status: 1000}, 500, "urn:reqlock:problem:misconfigured", ""},
		"a nil *Error":    {(*Error)(nil), 500, "urn:reqlock:problem:misconfigured", ""},
	} {
		w := httptest.NewRecorder()
		WriteProblem(w, httptest.NewRequest("GET", "/", nil), test.err)
		var body struct {
			Type, Title, Detail string
			Status              int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s: %v in %q", name, err, w.Body)
		}
		h := w.Header()
		if w.Code != test.status || body.Status != test.status || body.Type != test.typ || body.Title == "" || body.Detail == "" {
			t.Errorf("%s: %d %+v", name, w.Code, body)
		}
		if h.Get("Content-Type") != "application/problem+json" || h.Get("Retry-After") != test.retry ||
			h.Get("Cache-Control") != "no-store" || h.Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
			t.Errorf("%s: header %v", name, h)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: the cause is in the body: %s", name, w.Body)
		}
	}
}

// TestProblem_Titles lists what clients read first.
func TestProblem_Titles(t *testing.T) {
	t.Parallel()
	for problem, want := range map[string]string{
		ProblemLocked:     "Another request is in progress",
		ProblemLimit:      "Too many requests in progress",
		ProblemKeyMissing: "Lock key missing",
		ProblemKeyInvalid: "Lock key invalid",
	} {
		if got := newError(problem, nil).Title; got != want {
			t.Errorf("the title of %s is %q, want %q", problem, got, want)
		}
	}
	table, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for problem, p := range problems {
		if e := newError(problem, nil); e.Type != problem || len(p.title) > 40 || !strings.HasSuffix(p.detail, ".") {
			t.Errorf("%s: %+v", problem, e)
		}
		if row := fmt.Sprint(p.status, " ", problem); p.status != statusClientGone && !strings.Contains(string(table), row) {
			t.Errorf("the table of doc.go has no %q", row)
		}
	}
}

func TestError_Text(t *testing.T) {
	t.Parallel()
	e := newError(ProblemLocked, core.ErrNotAcquired)
	if !errors.Is(e, core.ErrNotAcquired) || !strings.HasPrefix(e.Error(), "reqlock: guard: ") || !strings.Contains(e.Error(), "not acquired") {
		t.Errorf("%v", e)
	}
	if got := newError(ProblemLocked, nil).Error(); strings.Contains(got, "nil") {
		t.Error(got)
	}
}

// An *Error without a status to send, such as a nil one returned as an error, is a mistake in the
// program. FailOpen does not apply to it.
func TestError_WithoutStatus(t *testing.T) {
	t.Parallel()
	for _, none := range []*Error{nil, {Title: "no status"}} {
		for name, cfg := range map[string]Config{
			"Key":    {Key: func(*http.Request) (string, error) { return "k", none }},
			"Policy": {Policy: func(_ *http.Request, p *Policy) error { p.Keys = []string{"k"}; return none }},
			"Locker": {Key: keyfuncs.Const("k")},
		} {
			var log strings.Builder
			cfg.Locker = func(*http.Request, string) core.Locker { return refusing{none} }
			cfg.FailOpen = true
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			g, err := New(nil, cfg)
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			g.Serve(w, httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the handler runs", name) })
			if w.Code != 500 || !strings.Contains(w.Body.String(), "misconfigured") || !strings.Contains(log.String(), "an *Error needs a Status") {
				t.Errorf("%s: answer %d %s, log %s", name, w.Code, w.Body, &log)
			}
		}
	}
}

// A refusing lock fails every Acquire with an error.
type refusing struct{ err error }

func (l refusing) Name() string { return "refusing" }

func (l refusing) Acquire(context.Context, core.AcquireOptions) (*core.Lease, error) {
	return nil, l.err
}

// The text of an application's error stays in the log, even if it wraps a sentinel. Clients see
// only the package's own texts.
func TestDetail_HidesOtherTexts(t *testing.T) {
	t.Parallel()
	g := &Guard{cfg: Config{Key: key}.withDefaults()}
	_, missing := keyfuncs.Header("X-Tenant")(httptest.NewRequest("GET", "/", nil))
	if e := g.refusal(ProblemKeyMissing, missing); e.Detail != "header X-Tenant is missing" {
		t.Errorf("Detail = %q", e.Detail)
	}
	if e := g.refusal(ProblemKeyMissing, fmt.Errorf("tenant 4711: %w", keyfuncs.ErrMissing)); strings.Contains(e.Detail, "4711") {
		t.Errorf("Detail = %q", e.Detail)
	}
}

func TestWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90, 1<<63 - 1: 9223372037} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("wholeSeconds(%d) = %d, want %d", d, got, want)
		}
	}
}

func TestIsPreflight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method string
		header http.Header
		want   bool
	}{
		"preflight":   {"OPTIONS", http.Header{"Origin": {"https://a"}, "Access-Control-Request-Method": {"POST"}}, true},
		"no Origin":   {"OPTIONS", http.Header{"Access-Control-Request-Method": {"POST"}}, false},
		"an OPTIONS":  {"OPTIONS", http.Header{"Origin": {"https://a"}}, false},
		"not OPTIONS": {"POST", http.Header{"Origin": {"https://a"}, "Access-Control-Request-Method": {"POST"}}, false},
	} {
		r := httptest.NewRequest(test.method, "/", nil)
		r.Header = test.header
		if isPreflight(r) != test.want {
			t.Errorf("%s: %v", name, !test.want)
		}
	}
}

// Any Error becomes an answer that clients can parse. It has the Error's fields and never its
// cause.
func FuzzWriteProblem(f *testing.F) {
	f.Add(409, ProblemLocked, "Locked", "Try again.", int64(time.Second))
	f.Add(103, "\xff", "a\nb", "\u2028<script>", int64(-1))
	f.Add(math.MaxInt, "", "", "", int64(1))
	f.Add(200, "urn:x", "\x00", `"}`, int64(1<<62))
	f.Fuzz(func(t *testing.T, status int, typ, title, detail string, retry int64) {
		own := &Error{Status: status, Type: typ, Title: title, Detail: detail, RetryAfter: time.Duration(retry), Err: errors.New("the cause of it")}
		w := httptest.NewRecorder()
		WriteProblem(w, httptest.NewRequest("GET", "/", nil), fmt.Errorf("outer: %w", own))
		var body struct {
			Type, Title, Detail string
			Status              int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%v in %q", err, w.Body)
		}
		want := own
		if !own.canBeSent() {
			want = newError(ProblemMisconfigured, nil)
		}
		if w.Code != want.Status || body.Status != w.Code ||
			body.Type != jsonText(want.Type) || body.Title != jsonText(want.Title) || body.Detail != jsonText(want.Detail) {
			t.Errorf("%+v is answered %d %+v", want, w.Code, body)
		}
		h := w.Header()
		if h.Get("Content-Length") != strconv.Itoa(w.Body.Len()) || !strings.Contains(h.Get("Content-Type"), "problem+json") {
			t.Errorf("header %v", h)
		}
		seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		if wait := time.Duration(seconds) * time.Second; (want.RetryAfter > 0) != (err == nil) || err == nil && (wait < want.RetryAfter-time.Second || seconds < 1) {
			t.Errorf("Retry-After %q for %v", h.Get("Retry-After"), want.RetryAfter)
		}
		if strings.Contains(w.Body.String(), "the cause of it") && !strings.Contains(typ+title+detail, "the cause of it") {
			t.Errorf("the cause is in the body: %s", w.Body)
		}
	})
}

// jsonText is a text as it comes out of JSON.
func jsonText(text string) (out string) {
	encoded, err := json.Marshal(text)
	if err != nil || json.Unmarshal(encoded, &out) != nil {
		return "not JSON"
	}
	return out
}
