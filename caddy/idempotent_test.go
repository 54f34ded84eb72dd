package caddylock_test

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A repeat gets the first answer, also one that the service sent in chunks, and runs nothing.
func TestIdempotent(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock_idempotent {
			scope {header.X-User}
			wait 1m
		}
		reverse_proxy `+s.addr()))
	post := func(path, user, key string) answer {
		t.Helper()
		return p.do(t, http.MethodPost, path, "X-User", user, "Idempotency-Key", key)
	}
	first := post("/payments", "alice", "k1")
	if first.status != http.StatusOK || first.body != "paid by python, number 1\n" || first.header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("%v %v", first, first.header)
	}
	if a := post("/payments", "alice", "k1"); a.body != first.body || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a repeat: %v %v", a, a.header)
	}
	if a := post("/pay%6Dents", "alice", "k1"); a.body != first.body {
		t.Errorf("a repeat with another spelling of the path: %v", a)
	}
	if a := post("/pay%256Dents", "alice", "k1"); a.problem() != "key-reused" {
		t.Errorf("a repeat with a path that some services read as the same one: %v", a)
	}
	if a := post("/payments", "bob", "k1"); a.body != "paid by python, number 2\n" {
		t.Errorf("the same key of another user: %v", a)
	}
	if a := post("/refunds", "alice", "k1"); a.body != "paid by python, number 3\n" {
		t.Errorf("the same key on another route: %v", a)
	}
	if a := p.do(t, http.MethodPost, "/payments", "X-User", "alice", "Idempotency-Key", "k1", "Host", "b.example"); a.body != "paid by python, number 4\n" {
		t.Errorf("the same key on another host: %v", a)
	}
	chunked := post("/payments?chunked", "alice", "k2")
	if chunked.body != "paid by python, number 5\n" {
		t.Errorf("an answer in chunks: %v", chunked)
	}
	if a := post("/payments?chunked", "alice", "k2"); a.body != chunked.body || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("its repeat: %v %v", a, a.header)
	}
	for range 2 { // failures are not recorded
		if a := post("/payments?status=500", "alice", "k3"); a.status != http.StatusInternalServerError || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("a failure: %v", a)
		}
	}
	if a := p.do(t, http.MethodPost, "/payments", "X-User", "alice"); a.status != http.StatusBadRequest || a.problem() != "key-missing" {
		t.Errorf("without a key: %v", a)
	}
	if a := p.do(t, http.MethodPost, "/payments", "Idempotency-Key", "k1"); a.status != http.StatusBadRequest || a.problem() != "key-missing" {
		t.Errorf("without a user: %v", a)
	}
	if a := p.do(t, http.MethodPost, "/a%252Fb", "X-User", "alice", "Idempotency-Key", "k1"); a.status != http.StatusBadRequest || a.problem() != "key-invalid" {
		t.Errorf("an escaped slash: %v", a)
	}
	a := send(t.Context(), p.client, http.MethodPost, p.url("/payments"), "another amount", "X-User", "alice", "Idempotency-Key", "k1")
	if a.status != http.StatusUnprocessableEntity || a.problem() != "key-reused" {
		t.Errorf("the key with another body: %v", a)
	}
	if a := p.do(t, http.MethodGet, "/payments"); a.status != http.StatusOK {
		t.Errorf("a GET: %v", a)
	}
}

// A stream of events is not held back, so it cannot be replayed.
func TestIdempotent_Stream(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock_idempotent {
			scope global
		}
		reverse_proxy `+s.addr()))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url("/events/7?gate=a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", "k")
	response, err := p.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	if !lines.Scan() || lines.Text() != "data: first" {
		t.Fatalf("%q, %v", lines.Text(), lines.Err())
	}
	s.open(t, "a")
	for lines.Scan() {
	}
	eventually(t, "the record of the stream", func() bool {
		return p.do(t, http.MethodPost, "/events/7?gate=a", "Idempotency-Key", "k").problem() == "not-replayable"
	})
}

// A client that left finds the answer when it asks again.
func TestIdempotent_ClientLeaves(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		@idempotent header Idempotency-Key *
		reqlock_idempotent @idempotent {
			scope global
			route payments
			wait 1m
		}
		reverse_proxy `+s.addr()))
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan answer, 1)
	go func() {
		first <- send(ctx, p.client, http.MethodPost, p.url("/payments?gate=a"), "", "Idempotency-Key", "k")
	}()
	s.eventuallyCalls(t, 1)
	leave()
	<-first
	again := p.doAsync(t, http.MethodPost, "/payments?gate=a", "Idempotency-Key", "k")
	s.open(t, "a")
	if a := mustReceive(t, again); a.body != "paid by python, number 1\n" || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%v %v", a, a.header)
	}
	if calls := s.journal(t); len(calls) != 1 {
		t.Errorf("the service was called %d times", len(calls))
	}
}

// A repeat gets its answer while another request holds the lock of its route, in whatever order the
// directives stand in the file. In a route block that order counts, and the wrong one is logged.
func TestIdempotent_Lock(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	const lock, once = `
		reqlock {
			key all
		}`, `
		reqlock_idempotent {
			scope global
		}`
	service := "\n\t\treverse_proxy " + s.addr()
	const warning = "a lock is around the idempotency guard"
	calls := 0
	for _, test := range []struct {
		site   string
		inside bool // idempotency is inside the lock
	}{
		{lock + once + service, false},
		{once + lock + service, false},
		{"route {" + once + lock + service + "\n}", false},
		{"route {" + lock + once + service + "\n}", true},
	} {
		p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", test.site))
		first := p.do(t, http.MethodPost, "/payments", "Idempotency-Key", "k")
		gate := strconv.Itoa(calls)
		holder := p.doAsync(t, http.MethodGet, "/payments?gate="+gate)
		calls += 2
		s.eventuallyCalls(t, calls)
		again := p.do(t, http.MethodPost, "/payments", "Idempotency-Key", "k")
		s.open(t, gate)
		mustReceive(t, holder)
		if test.inside {
			if again.problem() != "locked" || !p.eventuallyLogs(t, warning) {
				t.Errorf("idempotency inside: %v", again)
			}
		} else if again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %v, then %v", test.site, first, again)
		}
	}
}
