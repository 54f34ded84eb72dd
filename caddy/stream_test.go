package caddylock_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A stream reaches the client event by event, and holds its lock until it ends.
func TestStream(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock {
			key {path.1}
		}
		reverse_proxy `+s.addr()))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url("/events/7?gate=a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	if !lines.Scan() || lines.Text() != "data: first" {
		t.Fatalf("%q, %v", lines.Text(), lines.Err())
	}
	if a := p.do(t, http.MethodPost, "/elsewhere/7"); a.problem() != "locked" {
		t.Errorf("during the stream: %v", a)
	}
	s.open(t, "a")
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	if strings.Join(rest, "|") != "|data: last|" {
		t.Errorf("the rest of the stream is %q", rest)
	}
	eventuallyEmpty(t, redis.Client(t))
}

// A WebSocket holds its lock until either side closes it.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock {
			key {path.1}
		}
		reverse_proxy `+s.addr()))
	dial := func() (*websocket.Conn, error) {
		return websocket.Dial("ws://127.0.0.1:"+p.port+"/socket/7", "", "http://a.example")
	}
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	var echoed string
	for _, text := range []string{"hello", "again"} {
		if err := websocket.Message.Send(conn, text); err != nil {
			t.Fatal(err)
		}
		if err := websocket.Message.Receive(conn, &echoed); err != nil || echoed != text {
			t.Fatalf("%q, %v", echoed, err)
		}
	}
	if second, err := dial(); err == nil {
		_ = second.Close()
		t.Error("a second socket was opened under the same lock")
	}
	if a := p.do(t, http.MethodPost, "/orders/7"); a.problem() != "locked" {
		t.Errorf("while the socket is open: %v", a)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	eventuallyEmpty(t, redis.Client(t))
}

// After max_hold, the request to the service is cancelled and the lock is free.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock {
			key {path.1}
			max_hold 300ms
		}
		reverse_proxy `+s.addr()))
	if a := p.do(t, http.MethodPost, "/orders/7?gate=never"); a.status != http.StatusBadGateway && a.status != 499 {
		t.Errorf("%v", a)
	}
	if a := p.do(t, http.MethodPost, "/orders/7"); a.status != http.StatusOK {
		t.Errorf("after that: %v", a)
	}
	if !p.eventuallyLogs(t, "held its lock for MaxHold") {
		t.Error("the log does not say so")
	}
}
