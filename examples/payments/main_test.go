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
	s := &service{t, p, p.Find(t, `(http://[^/ ]+)/`), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}}
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

func (s *service) pay(key, body string) (r result) {
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+"/payments", strings.NewReader(body))
	if err != nil {
		return result{err: err}
	}
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("X-Account", "anna")
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
	const body = `{"to": "carla", "amount": 25, "crash": true}`
	if r := s.pay("crash", body); r.err == nil {
		t.Fatalf("answer %+v from a crashed process", r)
	}
	s.program.Until(t, "The API crashed")
	r := s.pay("crash", body)
	for r.err == nil && r.retry { // the dead process's lease has not ended yet
		r = s.pay("crash", body)
	}
	if r.err != nil || r.status != 201 || r.replayed || r.body != `{"id":"ch_1","to":"carla","amount":25}` {
		t.Errorf("answer %+v", r)
	}
	s.wantLedger(1, 2)
	if again := s.pay("crash", body); !again.replayed || again.body != r.body {
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
		if r := s.pay(key, `{"to": "carla", "amount": 1, "crash": true}`); r.err == nil {
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
	if r := s.pay("crash", `{"to": "carla", "amount": 2, "crash": true}`); r.err == nil {
		t.Fatalf("answer %+v from a crashed process", r)
	}
	if again := s.pay("kept", `{"to": "bert", "amount": 1}`); !again.replayed || again.body != first.body {
		t.Errorf("repeat %+v, want %+v", again, first)
	}
	s.wantLedger(2, 2)
	s.stop()
}

func TestPage(t *testing.T) {
	t.Parallel()
	s := start(t)
	response, err := s.client.Get(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(string(text), `<button id="five">`) {
		t.Errorf("page %v (%v)\n%s", response.Header, err, text)
	}
	s.stop()
}
