package caddylock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// The admin endpoint lists who holds and who waits, also holders in other processes.
func TestAdmin(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	rdb := redis.Client(t)
	s := startPython(t)
	config := caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n client_id web-1\n }", `
		reqlock /orders/* {
			key order:{path.1}
			wait 1m
		}
		reqlock /lists/* {
			key list:{path.1}
			mode read_write
		}
		reverse_proxy `+s.addr())
	p := startCaddy(t, config)
	listing := func(query string) (l inspect.Listing) {
		t.Helper()
		if err := json.Unmarshal([]byte(p.get(t, "/reqlock/locks"+query)), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	list := func(query string) []inspect.Lock { return listing(query).Locks }
	if !p.eventuallyLogs(t, "locks work") {
		t.Fatal(p.log)
	}
	if text := strings.TrimSpace(p.get(t, "/reqlock/locks")); text != `{"locks":[],"truncated":false}` {
		t.Errorf("without locks: %s", text)
	}
	first := p.doAsync(t, http.MethodPost, "/orders/42?gate=a", "X-Request-Id", "r1")
	s.eventuallyCalls(t, 1)
	writer := p.doAsync(t, http.MethodPost, "/lists/7?gate=a")
	s.eventuallyCalls(t, 2)
	second := p.doAsync(t, http.MethodPost, "/orders/42")
	eventuallyWaiting(t, rdb, "reqlock:order:42")
	elsewhere, err := core.New(redis.Client(t), core.Options{ClientID: "web-9"})
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close(t.Context())
	lease, err := elsewhere.Lock("reqlock:order:43").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context())
	locks := list("?prefix=reqlock:order:")
	if len(locks) != 2 || len(locks[0].Holders) != 1 || len(locks[1].Holders) != 1 {
		t.Fatalf("the locks are %+v", locks)
	}
	own := locks[0].Holders[0]
	if locks[0].Name != "reqlock:order:42" || locks[0].Kind != "lock" || locks[0].Listeners != 1 || locks[0].TTL < 1 ||
		!strings.HasPrefix(own.Client, "web-1.") || own.Route != "POST 127.0.0.1:"+p.port+"/orders/42" || own.RequestID != "r1" {
		t.Errorf("the lock of this process is %+v", locks[0])
	}
	eventually(t, "a millisecond of holding", func() bool { return list("?prefix=reqlock:order:42")[0].Holders[0].Held > 0 })
	if other := locks[1]; other.Name != "reqlock:order:43" || other.Holders[0].Held != 0 || other.Holders[0].Route != "" {
		t.Errorf("the lock of another process is %+v", other)
	}
	if all := list(""); len(all) != 3 || all[0].Kind != "write" || all[0].Holders[0].Route == "" {
		t.Errorf("all locks are %+v", all)
	}
	metrics := p.get(t, "/metrics")
	for _, line := range []string{
		`reqlock_locks_held{reqlock_client="",reqlock_kind="lock"} 1`,
		`reqlock_locks_held{reqlock_client="",reqlock_kind="write"} 1`,
		`reqlock_waiters{reqlock_client="",reqlock_kind="lock"} 1`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics lack %s:\n%s", line, metrics)
		}
	}
	if a := p.do(t, http.MethodPost, "/lists/7"); a.problem() != "locked" {
		t.Error(a)
	}
	pipe := rdb.Pipeline()
	for i := range 1001 {
		pipe.HSet(t.Context(), fmt.Sprint("many:", i), elsewhere.ID()+":1", 1)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := listing("?prefix=many:"); len(l.Locks) != 1000 || !l.Truncated {
		t.Errorf("%d of 1001 locks are listed, truncated %t", len(l.Locks), l.Truncated)
	}
	s.open(t, "a")
	for _, answers := range []<-chan answer{first, second, writer} {
		mustReceive(t, answers)
	}
	counted := []string{
		`reqlock_requests_total{http_route="",reqlock_problem="none"} 3`,
		`reqlock_requests_total{http_route="",reqlock_problem="locked"} 1`,
		`reqlock_acquire_duration_seconds_count{error_type="",reqlock_kind="write",reqlock_outcome="refused"} 1`,
		`reqlock_hold_duration_seconds_count{error_type="",reqlock_kind="lock",reqlock_outcome="released"} 2`,
	}
	// A request is counted a moment after its answer.
	eventually(t, "the end of all requests", func() bool {
		metrics := p.get(t, "/metrics")
		return strings.Contains(metrics, counted[0]+"\n") && strings.Contains(metrics, counted[3]+"\n")
	})
	p.reload(t, config) // counters go on
	metrics = p.get(t, "/metrics")
	for _, line := range counted {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics lack %s:\n%s", line, metrics)
		}
	}
	a := send(t.Context(), p.admin, http.MethodPost, "http://127.0.0.1/reqlock/locks", "")
	if a.status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v", a)
	}
}

// A list of locks that waits for a Redis that hangs keeps no reload waiting.
func TestAdmin_ListInAnOutage(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close() // Redis resets the connections that nothing has accepted
	config := func(answer string) string {
		return caddyfile("reqlock {\n redis redis://"+hung.Addr().String()+"?read_timeout=1h&max_retries=-1\n }", `
			reqlock /orders/* {
				key order:{path.1}
			}
			respond `+answer)
	}
	p := startCaddy(t, config("one"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listed := make(chan answer, 1)
	go func() { listed <- send(ctx, p.admin, http.MethodGet, "http://127.0.0.1/reqlock/locks", "") }()
	for range 2 { // the check of the start, and the list
		if _, err := hung.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	p.reload(t, config("two"))
	if got := p.do(t, http.MethodGet, "/"); got.body != "two" {
		t.Errorf("after the reload: %s", got)
	}
	select {
	case got := <-listed:
		t.Errorf("the list ended before the reload did: %s", got)
	default:
	}
	cancel()
	<-listed
}
