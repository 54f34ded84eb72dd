package adaptertest

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/idempotency"
)

// RunPolicy tests each sentence of the policy in docs/guides/idempotency.md.
func RunPolicy(t *testing.T, a Adapter) {
	page, err := os.ReadFile("../../docs/guides/idempotency.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, sentence := range sentences(string(page)) {
		said[sentence] = true
		test, known := policy[sentence]
		if !known {
			t.Errorf("no test is for the sentence %q", sentence)
			continue
		}
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			test(newFixture(t, a))
		})
	}
	for sentence := range policy {
		if !said[sentence] {
			t.Errorf("the policy does not say %q", sentence)
		}
	}
}

// sentences returns the sentences of all quotations, without the titles of their paragraphs.
func sentences(page string) (all []string) {
	var quoted strings.Builder
	for line := range strings.Lines(page) {
		if text, ok := strings.CutPrefix(line, ">"); ok {
			quoted.WriteString(strings.TrimSpace(text) + " ")
		}
	}
	text := regexp.MustCompile(`\*\*[^*]+\.\*\* `).ReplaceAllString(quoted.String(), "")
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "**", "")), " ")
	for sentence := range strings.SplitSeq(text, ". ") {
		if sentence = strings.Trim(sentence, ". "); sentence != "" {
			all = append(all, sentence)
		}
	}
	return all
}

// policy has the test of each sentence.
var policy = map[string]func(*fixture){
	"`POST` and `PATCH` requests need the header `Idempotency-Key`: 1 to 255 visible ASCII characters, new for each new request, such as a random UUID": func(fx *fixture) {
		s := fx.serveOnce((&counter{}).ServeHTTP)
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			as := func(r *http.Request) { r.Method = method }
			for _, good := range []string{"k", strings.Repeat("k", 255), "!~", "8e03978e-40d5-43e8-bc93-6894a57f9324"} {
				if a := s.postWithKey("x", as, with("Idempotency-Key", good)); a.status != 201 || a.header.Get("Idempotent-Replayed") != "" {
					fx.Errorf("%s with the key %q: %d", method, good, a.status)
				}
			}
			for _, bad := range []string{strings.Repeat("k", 256), "a b", "é", ""} {
				s.postWithKey("x", as, with("Idempotency-Key", bad)).wantProblem(fx, 400, "key-invalid", "")
			}
		}
	},
	"Double quotes around the key are not part of it": func(fx *fixture) {
		s := fx.serveOnce((&counter{}).ServeHTTP)
		first := s.postWithKey("x")
		s.postWithKey("x", with("Idempotency-Key", `"`+key+`"`)).wantReplay(fx, first)
	},
	"A request without the header is answered 400": func(fx *fixture) {
		s := fx.serveOnce((&counter{}).ServeHTTP)
		s.postWithKey("x", func(r *http.Request) { r.Header.Del("Idempotency-Key") }).wantProblem(fx, 400, "key-missing", "")
	},
	"After no answer, or a 5xx, send the same request with the same key": func(fx *fixture) {
		fx.repeatRuns([]http.HandlerFunc{endingsBadly[0], badAnswers["502"]})
	},
	"If we processed the first request, you get its answer again, with the header `Idempotent-Replayed: true`": func(fx *fixture) {
		c := &counter{}
		s := fx.serveOnce(c.ServeHTTP)
		first := s.postWithKey("x")
		for range 2 {
			s.postWithKey("x").wantReplay(fx, first)
		}
		c.want(fx, 1)
	},
	"We repeat answers below 500, except 401, 408, 409, 412, 416, 421, 423, 425 and 429": func(fx *fixture) {
		except := map[int]bool{401: true, 408: true, 409: true, 412: true, 416: true, 421: true, 423: true, 425: true, 429: true}
		for status := 200; status < 500; status++ {
			if repeated := fx.repeats(status); repeated != !except[status] {
				fx.Errorf("%d is repeated: %v", status, repeated)
			}
		}
	},
	"After one of these, or a 5xx, we process the request again": func(fx *fixture) {
		for _, status := range []int{401, 408, 409, 412, 416, 421, 423, 425, 429, 500, 502, 503, 504, 507, 599} {
			if fx.repeats(status) {
				fx.Errorf("%d is repeated", status)
			}
		}
	},
	"If we could not keep the answer, such as a very long one, a repeat gets 409 with the problem type `urn:reqlock:problem:not-replayable`, and is not processed": func(fx *fixture) {
		var runs atomic.Int64
		s := fx.serveOnce(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			_, _ = w.Write(make([]byte, 1<<20+1))
		})
		if a := s.postWithKey("x"); a.status != 200 || len(a.body) != 1<<20+1 {
			fx.Errorf("the answer is %d with %d bytes", a.status, len(a.body))
		}
		s.postWithKey("x").wantProblem(fx, 409, "not-replayable", "")
		if runs.Load() != 1 {
			fx.Errorf("%d runs, want 1", runs.Load())
		}
	},
	"While we process the first request, a repeat gets 409 with the problem type `urn:reqlock:problem:locked` and `Retry-After`": func(fx *fixture) {
		s, runs, out := fx.heldRun(answering(201))
		first := s.start(s.newRequestWithKey("x"))
		fx.eventually("the first runs", func() bool { return runs.Load() == 1 })
		s.postWithKey("x").wantProblem(fx, 409, "locked", "1")
		close(out)
		first.mustGetAnswer()
	},
	"Send it again later, unchanged": func(fx *fixture) {
		s, runs, out := fx.heldRun(answering(201))
		first := s.start(s.newRequestWithKey("x"))
		fx.eventually("the first runs", func() bool { return runs.Load() == 1 })
		s.postWithKey("x").wantProblem(fx, 409, "locked", "1")
		close(out)
		done := first.mustGetAnswer()
		s.postWithKey("x").wantReplay(fx, done)
	},
	"Method, path, query, body, `Content-Type`, `Accept`, `Range`, `If-Match` and all other conditions belong to it, byte for byte; of a multipart form, all but the boundary": func(fx *fixture) {
		c := &counter{}
		s := fx.serveOnce(c.ServeHTTP, func(cfg *idempotency.Config) { cfg.Route = "one" })
		s.postWithKey("x")
		for _, other := range []func(*http.Request){
			to("/orders/43"), func(r *http.Request) { r.URL.RawQuery = "a=1" }, with("Content-Type", "text/plain"), with("Accept", "text/plain"),
			with("Range", "bytes=0-1"), with("If-Match", `"v1"`), with("If-None-Match", "*"), with("If-Range", `"v1"`),
			with("If-Modified-Since", "Mon, 02 Jan 2006 15:04:05 GMT"), with("If-Unmodified-Since", "Mon, 02 Jan 2006 15:04:05 GMT"),
		} {
			s.postWithKey("x", other).wantProblem(fx, 422, "key-reused", "")
		}
		s.postWithKey("x ").wantProblem(fx, 422, "key-reused", "")
		form := func(boundary string) answer {
			body := "--" + boundary + "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--" + boundary + "--\r\n"
			return s.postWithKey(body, with("Content-Type", "multipart/form-data; boundary="+boundary), with("Idempotency-Key", "a-form"))
		}
		first := form("abc")
		if again := form("def"); again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
			fx.Errorf("the form with another boundary: %d %q", again.status, again.body)
		}
		c.want(fx, 2)
	},
	"A key that comes with another request gets 422, and nothing is done, whether the first one is still processed, is done, or has failed": onceBinds,
	"Keys of different accounts, methods and routes are independent":                                                                        onceScopes,
	"Keys expire 24 hours after we processed the request, or 10 minutes if the answer was 400 to 499": func(fx *fixture) {
		for code, want := range map[int]time.Duration{200: 24 * time.Hour, 303: 24 * time.Hour, 400: 10 * time.Minute, 422: 10 * time.Minute} {
			s := fx.serveOnce(answering(code))
			s.postWithKey("x")
			if left := fx.rdb.PTTL(background, fx.record()).Val(); left > want || left < want-patience {
				fx.Errorf("a %d expires in %v, want %v", code, left, want)
			}
			fx.forgetKeys()
		}
	},
	"After that, the same key is a new request": func(fx *fixture) {
		c := &counter{}
		s := fx.serveOnce(c.ServeHTTP)
		s.postWithKey("x").wantOwn(fx, 201, "1 x")
		fx.rdb.PExpire(background, fx.record(), time.Millisecond)
		fx.eventually("it expires", func() bool { return len(fx.keptKeys()) == 0 })
		s.postWithKey("y").wantOwn(fx, 201, "2 y")
	},
	"If a server fails, or runs out of time, while it processes your request, we process a repeat again": func(fx *fixture) {
		fx.repeatRuns(interruptions, holdsKeyFor)
	},
	"While we process the first request, a repeat waits for its answer": func(fx *fixture) {
		s, runs, out := fx.heldRun(answering(201), repeatsWait)
		first := s.start(s.newRequestWithKey("x"))
		fx.eventually("the first runs", func() bool { return runs.Load() == 1 })
		again := s.start(s.newRequestWithKey("x"))
		fx.eventually("the repeat waits", func() bool { return fx.locks.Stats().Waiting == 1 })
		close(out)
		again.mustGetAnswer().wantReplay(fx, first.mustGetAnswer())
	},
	"If that takes too long, it gets 409 with the problem type `urn:reqlock:problem:wait-timeout` and `Retry-After`":             onceWaitsInVain,
	"If the first request fails meanwhile, it gets 409 with the problem type `urn:reqlock:problem:run-failed` and `Retry-After`": onceHerd,
	"In both cases, send it again, unchanged": func(fx *fixture) {
		s, runs, out := fx.heldRun(badAnswers["502"], func(cfg *idempotency.Config) { cfg.WaitTime = time.Millisecond })
		first := s.start(s.newRequestWithKey("x"))
		fx.eventually("the first runs", func() bool { return runs.Load() == 1 })
		s.postWithKey("x").wantProblem(fx, 409, "wait-timeout", "1")
		close(out)
		first.mustGetAnswer()
		s.postWithKey("x").wantOwn(fx, 201, "")
	},
	"If we fail, or run out of time, while we process your request, a repeat gets 409 with the problem type `urn:reqlock:problem:outcome-unknown` for 24 hours after the request": func(fx *fixture) {
		for _, end := range interruptions {
			s, runs, out := fx.heldRun(end, holdsKeyFor, refuses)
			close(out)
			s.send(s.newRequestWithKey("x"))
			fx.outcome()
			s.postWithKey("x").wantProblem(fx, 409, "outcome-unknown", "")
			if left := fx.rdb.PTTL(background, fx.record()).Val(); left > 24*time.Hour || left < 24*time.Hour-patience {
				fx.Errorf("the marker expires in %v", left)
			}
			if runs.Load() != 1 {
				fx.Errorf("%d runs, want 1", runs.Load())
			}
			fx.forgetKeys()
		}
	},
	"Find out what was done before you use a new key": func(fx *fixture) { // a new key runs
		s, runs, out := fx.heldRun(endingsBadly[0], refuses)
		close(out)
		s.send(s.newRequestWithKey("x"))
		fx.outcome()
		s.postWithKey("x", with("Idempotency-Key", "new")).wantOwn(fx, 201, "")
		if runs.Load() != 2 {
			fx.Errorf("%d runs, want 2", runs.Load())
		}
	},
}

// interruptions are runs that fail, or run out of time.
var interruptions = []http.HandlerFunc{
	endingsBadly[0], endingsBadly[3],
	func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // MaxHold
		http.Error(w, "out of time", http.StatusGatewayTimeout)
	},
	func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
}

// repeatRuns checks that a repeat runs after each of these runs.
func (fx *fixture) repeatRuns(ends []http.HandlerFunc, changes ...func(*idempotency.Config)) {
	fx.Helper()
	for _, end := range ends {
		s, _, out := fx.heldRun(end, changes...)
		close(out)
		s.send(s.newRequestWithKey("x"))
		fx.outcome()
		s.postWithKey("x").wantOwn(fx, 201, "")
		fx.forgetKeys()
	}
}

// repeats reports whether a repeat gets the answer with a status.
func (fx *fixture) repeats(code int) bool {
	fx.Helper()
	var runs atomic.Int64
	s := fx.serveOnce(func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		w.WriteHeader(code)
		if code != 204 && code != 304 {
			_, _ = io.WriteString(w, "done")
		}
	})
	first, again := s.postWithKey("x"), s.postWithKey("x")
	if first.status != code || again.status != code {
		fx.Errorf("%d: the answers are %d and %d", code, first.status, again.status)
	}
	fx.outcomesOf(2)
	fx.forgetKeys()
	replayed := again.header.Get("Idempotent-Replayed") == "true"
	if n := runs.Load(); replayed != (n == 1) {
		fx.Errorf("%d: %d runs", code, n)
	}
	return replayed
}

func answering(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}
