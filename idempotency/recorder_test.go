package idempotency

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A copier has the optional method of the server's writer that io.Copy uses.
type copier struct{ *httptest.ResponseRecorder }

func (c copier) ReadFrom(src io.Reader) (int64, error) { return io.Copy(c.ResponseRecorder, src) }

// TestRecorder_States has handlers, the states that they lead to, and the body that the client has
// before and after the answer is released.
func TestRecorder_States(t *testing.T) {
	t.Parallel()
	type writer = http.ResponseWriter
	for name, test := range map[string]struct {
		handle      func(w writer, rec *Recorder)
		state       recorderState // when the handler returns
		completed   recorderState
		whole       bool
		sent, after string // before and after release
	}{
		"nothing":          {func(writer, *Recorder) {}, recorderIdle, recorderImplicit, true, "", ""},
		"a status":         {func(w writer, _ *Recorder) { w.WriteHeader(201) }, recorderHolding, recorderHolding, true, "", ""},
		"a body":           {func(w writer, _ *Recorder) { _, _ = io.WriteString(w, "body") }, recorderHolding, recorderHolding, true, "", "body"},
		"copied":           {func(w writer, _ *Recorder) { _, _ = io.Copy(w, io.LimitReader(strings.NewReader("body"), 4)) }, recorderHolding, recorderHolding, true, "", "body"},
		"early hints":      {func(w writer, _ *Recorder) { w.WriteHeader(103) }, recorderIdle, recorderImplicit, true, "", ""},
		"too long":         {func(w writer, _ *Recorder) { _, _ = io.WriteString(w, "long body") }, recorderPassing, recorderPassing, false, "long body", "long body"},
		"flushed":          {func(w writer, _ *Recorder) { w.(http.Flusher).Flush() }, recorderPassing, recorderPassing, false, "", ""},
		"bypassed":         {func(_ writer, rec *Recorder) { rec.Bypassed(202) }, recorderPassing, recorderPassing, false, "", ""},
		"failed":           {func(_ writer, rec *Recorder) { rec.Failed() }, recorderFailed, recorderFailed, false, "", ""},
		"a trailer":        {func(w writer, _ *Recorder) { w.Header().Set("Trailer:X", "1") }, recorderIdle, recorderPassing, false, "", ""},
		"failed, answered": {func(w writer, rec *Recorder) { _, _ = io.WriteString(w, "body"); rec.Failed() }, recorderHolding, recorderHolding, true, "", "body"},
		"failed, flushed":  {func(w writer, rec *Recorder) { w.(http.Flusher).Flush(); rec.Failed() }, recorderPassing, recorderPassing, false, "", ""},
		"cut short":        {func(w writer, _ *Recorder) { w.Header().Set("Content-Length", "3"); _, _ = io.WriteString(w, "a") }, recorderHolding, recorderPassing, false, "", "a"},
		"bypassed, late": {func(w writer, rec *Recorder) {
			_, _ = io.WriteString(w, "long body")
			rec.Bypassed(202)
		}, recorderPassing, recorderPassing, false, "long body", "long body"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			passed := 0
			rec := &Recorder{r: httptest.NewRequest("POST", "/", nil), limit: 5, onPass: func() { passed++ }}
			w := httptest.NewRecorder()
			test.handle(rec.Wrap(copier{w}), rec)
			if rec.state != test.state || w.Body.String() != test.sent {
				t.Errorf("the handler leaves state %d and %q, want %d and %q", rec.state, w.Body, test.state, test.sent)
			}
			if whole := rec.complete(); whole != test.whole || rec.state != test.completed {
				t.Errorf("complete = %v, state %d; want %v, state %d", whole, rec.state, test.whole, test.completed)
			}
			rec.release()
			rec.abandon() // does nothing any more
			if w.Body.String() != test.after {
				t.Errorf("the client has %q, want %q", w.Body, test.after)
			}
			if want := map[bool]int{true: 1}[test.completed == recorderPassing]; passed != want {
				t.Errorf("onPass was called %d times, want %d", passed, want)
			}
			if rec.move(recorderHolding) || passed == 0 && rec.state != recorderEnded {
				t.Errorf("the state went back, or is %d in the end", rec.state)
			}
		})
	}
}

func TestRecorder_Abandon(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "half": 1} {
		rec := &Recorder{r: httptest.NewRequest("POST", "/", nil), limit: 5, onPass: func() {}}
		w := httptest.NewRecorder()
		if out := rec.Wrap(w); text != "" {
			out.WriteHeader(201)
			_, _ = io.WriteString(out, text)
		}
		rec.abandon()
		if w.Body.String() != text || rec.state != recorderEnded || want == 1 && w.Code != 201 {
			t.Errorf("after %q: the client has %d %q, state %d", text, w.Code, w.Body, rec.state)
		}
	}
	new(Recorder).abandon() // of a handler that panics before Wrap
}
