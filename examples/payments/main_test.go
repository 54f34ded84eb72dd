package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

func TestHelp(t *testing.T) {
	t.Parallel()
	demotest.Help(t)
}

// A service is a run of the program.
type service struct {
	*testing.T
	program *demotest.Program
	url     string
	client  *http.Client
}

// start starts a service. Its client uses a new connection per request, because on a reused one it
// would retry a request with a key itself.
func start(t *testing.T) *service {
	t.Helper()
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	s := &service{t, p, p.URL(t), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// stop ends the program and checks that its API is gone.
func (s *service) stop() {
	s.Helper()
	s.program.Signal(s.T, syscall.SIGTERM)
	s.program.End(s.T, 0) // returns when the API has ended too, because it has the same output
	if _, err := s.client.Get(s.url + "/ledger"); err == nil {
		s.Error("the API still answers")
	}
}

type result struct {
	status   int
	body     string
	replayed bool
	retry    bool
	err      error
}

func (s *service) pay(key, body string) result { return s.send("/payments", key, body, "") }

// payAndCrash pays 25 to carla and crashes the API after the money has moved.
func (s *service) payAndCrash(key string) result { return s.send("/payments", key, toCarla, "1") }

const toCarla = `{"to": "carla", "amount": 25}`

func (s *service) send(path, key, body, crashAfter string) (r result) {
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		return result{err: err}
	}
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("X-Account", "anna")
	request.Header.Set("X-Crash-After", crashAfter)
	response, err := s.client.Do(request)
	if err != nil {
		return result{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return result{response.StatusCode, string(text), response.Header.Get("Idempotent-Replayed") == "true", response.Header.Get("Retry-After") != "", err}
}

// wantLedger fails the test unless the bank has this number of charges and calls.
func (s *service) wantLedger(charges, calls int) {
	s.Helper()
	response, err := s.client.Get(s.url + "/ledger")
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	var ledger struct {
		Charges []charge
		Calls   int
	}
	if err := json.NewDecoder(response.Body).Decode(&ledger); err != nil {
		s.Fatal(err)
	}
	if len(ledger.Charges) != charges || ledger.Calls != calls {
		s.Errorf("ledger %+v, want %d charges and %d calls", ledger, charges, calls)
	}
}

func TestFiveTimes(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.wantLedger(0, 0)
	const body = `{"to": "bert", "amount": 10}`
	results := make(chan result)
	for range 5 {
		go func() { results <- s.pay("five", body) }()
	}
	replayed := 0
	for range 5 {
		r := <-results
		if r.err != nil || r.status != 201 || r.body != `{"id":"ch_1","to":"bert","amount":10}` {
			t.Errorf("answer %+v", r)
		}
		if r.replayed {
			replayed++
		}
	}
	if replayed != 4 {
		t.Errorf("%d answers are replays, want 4", replayed)
	}
	s.wantLedger(1, 1)
	for what, r := range map[string]result{
		"422": s.pay("five", `{"to": "bert", "amount": 11}`),
		"400": s.pay("", body),
	} {
		if !strings.Contains(r.body, `"status":`+what) {
			t.Errorf("answer %+v, want %s", r, what)
		}
	}
	if r := s.pay("bad", `{}`); r.status != 400 || !strings.Contains(r.body, "want {") {
		t.Errorf("answer %+v", r)
	}
	s.stop()
}

// An API that cannot accept connections reports that and exits. The parent starts another.
func TestServeFails(t *testing.T) {
	redis, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := serve(listener, redis, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v, want %v", err, net.ErrClosed)
	}
}

// The process crashes after the money has moved. The next one finds out.
func TestCrash(t *testing.T) {
	t.Parallel()
	s := start(t)
	if r := s.payAndCrash("crash"); r.err == nil {
		t.Fatalf("answer %+v from a crashed process", r)
	}
	s.program.Until(t, "The API crashed")
	r := s.pay("crash", toCarla)
	for r.err == nil && r.retry { // the dead process's lease has not ended yet
		r = s.pay("crash", toCarla)
	}
	if r.err != nil || r.status != 201 || r.replayed || r.body != `{"id":"ch_1","to":"carla","amount":25}` {
		t.Errorf("answer %+v", r)
	}
	s.wantLedger(1, 2)
	if again := s.pay("crash", toCarla); !again.replayed || again.body != r.body {
		t.Errorf("repeat %+v", again)
	}
	s.wantLedger(1, 2)
	s.stop()
}

// However often the process crashes, the next one serves.
func TestManyCrashes(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, key := range []string{"1", "2", "3", "4", "5", "6"} {
		if r := s.payAndCrash(key); r.err == nil {
			t.Errorf("crash %s: answer %+v from a crashed process", key, r)
		}
	}
	if r := s.pay("last", `{"to": "bert", "amount": 1}`); r.status != 201 {
		t.Errorf("answer %+v", r)
	}
	s.wantLedger(7, 7)
	s.stop()
}

// A record outlives its process.
func TestRecordOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := s.pay("kept", `{"to": "bert", "amount": 1}`)
	if first.status != 201 {
		t.Fatalf("answer %+v", first)
	}
	if r := s.payAndCrash("crash"); r.err == nil {
		t.Fatalf("answer %+v from a crashed process", r)
	}
	if again := s.pay("kept", `{"to": "bert", "amount": 1}`); !again.replayed || again.body != first.body {
		t.Errorf("repeat %+v, want %+v", again, first)
	}
	s.wantLedger(2, 2)
	s.stop()
}

// Without the middleware, each request is a payment.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	s := start(t)
	const body = `{"to": "bert", "amount": 10}`
	for _, id := range []string{"ch_1", "ch_2"} {
		if r := s.send("/unguarded/payments", "same", body, ""); r.status != 201 || r.replayed || !strings.Contains(r.body, id) {
			t.Errorf("answer %+v, want a new charge %s", r, id)
		}
	}
	s.wantLedger(2, 2)
	s.stop()
}

// Other sites cannot use the service through a visitor's browser.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	s := start(t)
	ask := func(method, path string, header http.Header, host string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(`{"to": "bert", "amount": 10}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = header
		request.Header.Set("Idempotency-Key", "k")
		request.Header.Set("X-Account", "anna")
		if host != "" {
			request.Host = host
		}
		response, err := s.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	for name, test := range map[string]struct {
		method, path string
		header       http.Header
		host         string
		want         int
	}{
		"another origin":      {"POST", "/payments", http.Header{"Origin": {"https://evil.example"}}, "", 403},
		"unguarded":           {"POST", "/unguarded/payments", http.Header{"Origin": {"https://evil.example"}}, "", 403},
		"a form elsewhere":    {"POST", "/payments", http.Header{"Sec-Fetch-Site": {"cross-site"}}, "", 403},
		"a name that rebinds": {"POST", "/payments", http.Header{}, "evil.example", 403},
		"its ledger":          {"GET", "/ledger", http.Header{}, "evil.example:8080", 403},
		"an address":          {"GET", "/payments", http.Header{}, "", 404},
	} {
		if got := ask(test.method, test.path, test.header, test.host); got != test.want {
			t.Errorf("%s: status %d, want %d", name, got, test.want)
		}
	}
	s.wantLedger(0, 0)
	if got := ask("POST", "/payments", http.Header{"Origin": {s.url}}, ""); got != 201 {
		t.Errorf("the page itself: status %d", got)
	}
	s.wantLedger(1, 1)
	s.stop()
}

func TestPage(t *testing.T) {
	t.Parallel()
	s := start(t)
	for path, want := range map[string][2]string{
		"/":         {"text/html; charset=utf-8", `<button id="crash"`},
		"/page.css": {"text/css; charset=utf-8", ".timeline"},
		"/page.js":  {"text/javascript; charset=utf-8", "EventSource"},
	} {
		response, err := s.client.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.Header.Get("Content-Type") != want[0] || !strings.Contains(string(text), want[1]) ||
			!strings.Contains(response.Header.Get("Content-Security-Policy"), "default-src 'self'") {
			t.Errorf("%s: %v (%v)\n%s", path, response.Header, err, text)
		}
	}
	s.stop()
}
