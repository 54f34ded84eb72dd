package main

import (
	"context"
	"net/http"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

// A room has one host. When the host leaves, another may have the room.
func TestRooms(t *testing.T) {
	t.Parallel()
	p, ctx := demotest.Start(t, ""), t.Context()
	p.Until(t, "Serving until Ctrl-C.")
	base := "ws" + p.Find(t, `http(://[\d.]+:\d+)`) + "/rooms/blue"

	host, status := dial(t, base+"/host")
	listener, _ := dial(t, base)
	if host == nil || listener == nil {
		t.Fatalf("status %d", status)
	}
	if second, status := dial(t, base+"/host"); second != nil || status != http.StatusConflict {
		t.Errorf("a second host got %d", status)
	}
	if other, status := dial(t, "ws"+p.Find(t, `http(://[\d.]+:\d+)`)+"/rooms/red/host"); other == nil {
		t.Errorf("the host of another room got %d", status)
	}
	if err := host.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := listener.Read(ctx); err != nil || string(text) != "hello" {
		t.Errorf("the listener heard %q (%v)", text, err)
	}

	if err := host.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	var next *websocket.Conn
	demotest.Await(t, "no room for the next host", func(context.Context) bool {
		next, _ = dial(t, base+"/host")
		return next != nil
	})
	p.Signal(t, syscall.SIGTERM)
	if _, _, err := next.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the host of a program that stops: %v", err)
	}
	p.End(t, 0)
}

// A host whose lock is lost is told, and no longer heard.
func TestHostLosesTheRoom(t *testing.T) {
	t.Parallel()
	p := demotest.Start(t, "")
	p.Until(t, "Serving until Ctrl-C.")
	host, status := dial(t, "ws"+p.Find(t, `http(://[\d.]+:\d+)`)+"/rooms/blue/host")
	if host == nil {
		t.Fatalf("status %d", status)
	}
	if err := p.Redis(t).Del(t.Context(), "reqlock:room:blue").Err(); err != nil { // the watchdog notices
		t.Fatal(err)
	}
	if _, _, err := host.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Errorf("the host of a lost room: %v", err)
	}
	p.Signal(t, syscall.SIGTERM)
	p.EndSaying(t, "lost")
}

// dial returns no connection if the answer is not that of a WebSocket.
func dial(t *testing.T, url string) (*websocket.Conn, int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	conn, response, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		if response == nil {
			t.Fatal(err)
		}
		return nil, response.StatusCode
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn, response.StatusCode
}

func TestFailures(t *testing.T) {
	t.Parallel()
	demotest.Failures(t)
}
