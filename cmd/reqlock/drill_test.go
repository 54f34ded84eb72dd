package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// requestID is the key of a request's id in its context.
type requestID struct{}

func annotate(ctx context.Context) core.Annotation {
	id, _ := ctx.Value(requestID{}).(string)
	return core.Annotation{RequestID: id}
}

// A shop is a service whose payments hang until their lock is lost.
type shop struct {
	*httptest.Server
	// hangs gets a value when a payment has begun.
	hangs chan struct{}
	// ends gets the cause of the end of its context.
	ends chan error
}

func newShop(t *testing.T, locks *core.Client) *shop {
	s := &shop{hangs: make(chan struct{}, 1), ends: make(chan error, 1)}
	pay := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.hangs <- struct{}{}
		<-r.Context().Done()
		s.ends <- context.Cause(r.Context())
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", httplock.New(locks, httplock.Config{
		Key: keyfuncs.Prefix("order:", keyfuncs.PathValue("id")), Logger: slog.New(slog.DiscardHandler),
	})(pay))
	mux.Handle("GET /debug/locks/", inspect.Handler(locks, inspect.Options{}))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestID{}, r.Header.Get("X-Request-Id"))))
	}))
	t.Cleanup(s.Close)
	return s
}

// pay sends a payment and returns the status of the answer.
func (s *shop) pay(ctx context.Context) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/orders/42/pay", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("X-Request-Id", "req-7781")
	answer, err := s.Client().Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	return answer.StatusCode, nil
}

// shell runs the program and logs it as a terminal would show it.
func shell(t *testing.T, url string, code int, args ...string) string {
	t.Helper()
	cmd := program(url, args...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	line := "reqlock"
	for _, arg := range args {
		if strings.Contains(arg, " ") {
			arg = strconv.Quote(arg)
		}
		line += " " + arg
	}
	t.Logf("\n$ %s\n%s[exit code %d]", line, out, cmd.ProcessState.ExitCode())
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("reqlock %q exits with %d, want %d", args, got, code)
	}
	return string(out)
}

// A lock that is stuck is found, from the alert to the process and the request, and freed, in four
// commands. A lock of a JVM is shown beside it. Then Redis dies and comes back.
func TestDrill(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "appendonly yes", "appendfsync always")
	rdb := srv.Client(t)
	locks, err := core.New(rdb, core.Options{ClientID: "web-1.4242", Annotate: annotate, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	s := newShop(t, locks)
	first := make(chan error, 1)
	go func() {
		_, err := s.pay(t.Context())
		first <- err
	}()
	<-s.hangs
	if code, err := s.pay(t.Context()); code != http.StatusConflict || err != nil {
		t.Fatalf("the alert: a second payment gets %d, %v", code, err)
	}

	if err := rdb.HSet(t.Context(), "reqlock:order:43", jvm+":57", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.PExpire(t.Context(), "reqlock:order:43", 5*time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	list := shell(t, srv.URL(), done, "ls", "reqlock:order:")
	if !strings.Contains(list, "reqlock:order:42") || !strings.Contains(list, "Redisson "+jvm) {
		t.Error("the list lacks a lock")
	}
	if shown := shell(t, srv.URL(), done, "show", "reqlock:order:42"); !strings.Contains(shown, "host web-1, pid 4242") {
		t.Error("the process is not shown")
	}
	answer, err := s.Client().Get(s.URL + "/debug/locks/locks.json")
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	t.Logf("\n$ curl -s http://web-1/debug/locks/locks.json\n%s", page)
	var listing inspect.Listing
	if err := json.Unmarshal(page, &listing); err != nil {
		t.Fatal(err)
	}
	shown := listing.Locks
	stuck := slices.IndexFunc(shown, func(l inspect.Lock) bool { return l.Name == "reqlock:order:42" })
	if stuck < 0 || len(shown[stuck].Holders) != 1 {
		t.Fatalf("the process shows %s", page)
	}
	if h := shown[stuck].Holders[0]; h.Route != "POST /orders/{id}/pay" || h.RequestID != "req-7781" || h.Held <= 0 {
		t.Errorf("the process shows %+v", h)
	}
	begin := time.Now()
	shell(t, srv.URL(), done, "unlock", "reqlock:order:42", "--yes", "--reason", "the bank does not answer")
	select {
	case cause := <-s.ends:
		t.Logf("the handler's context ended %s after the command was started: %v", time.Since(begin).Round(time.Millisecond), cause)
		if !errors.Is(cause, core.ErrLockLost) {
			t.Errorf("it ended with %v", cause)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the handler runs on")
	}
	if err := <-first; err != nil {
		t.Error(err)
	}

	ctx, leave := context.WithCancel(t.Context())
	next := make(chan error, 1)
	go func() {
		_, err := s.pay(ctx)
		next <- err
	}()
	<-s.hangs // the next payment has the lock
	srv.Kill(t)
	page, err = os.ReadFile("../../docs/guides/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"ls", "doctor"} {
		said := shell(t, srv.URL(), redisFailed, command)
		said = strings.ReplaceAll(said, strings.TrimPrefix(srv.URL(), "redis://"), "127.0.0.1:6379")
		if shown := "$ reqlock " + command + "\n" + said; !strings.Contains(string(page), shown) {
			t.Errorf("docs/guides/commands.md does not show\n%s", shown)
		}
	}
	shell(t, srv.URL(), redisFailed, "unlock", "reqlock:order:42", "--yes", "--reason", "while Redis is down")
	srv.Restart(t)
	if list := shell(t, srv.URL(), done, "ls", "reqlock:order:42"); !strings.Contains(list, "web-1.4242.") {
		t.Error("the lock did not survive the restart")
	}
	leave()
	if err := <-next; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	t.Log(fmt.Sprint("the handler ended: ", <-s.ends))
}
