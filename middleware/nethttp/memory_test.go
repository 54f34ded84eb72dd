package httplock

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Repeats whose clients do not read share one copy of the answer. Not parallel: it measures the heap.
func TestIdempotent_OneCopyOfAnAnswer(t *testing.T) {
	const repeats, size = 20, 16 << 20
	locks, err := core.New(redistest.Start(t).Client(t), core.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	begun, out := make(chan struct{}), make(chan struct{})
	once := Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal, WaitTime: time.Minute, MaxResponseBody: size})
	srv := httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-out
		_, _ = w.Write(make([]byte, size))
	})))
	defer srv.Close()
	request := "POST / HTTP/1.1\r\nHost: test\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n"
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).SetReadBuffer(4096) // so that the server cannot send all
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conns := []net.Conn{dial()}
	<-begun
	for range repeats {
		conns = append(conns, dial())
	}
	waitUntil(t, func() bool { return locks.Stats().Waiting == repeats })
	before := heap()
	close(out)
	waitUntil(t, func() bool { return locks.Stats() == core.Stats{} })
	for _, conn := range conns { // each has got the beginning
		if _, err := io.ReadFull(conn, make([]byte, 17)); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > repeats*size/4 {
		t.Errorf("%d repeats of an answer of %d bytes hold %d bytes", repeats, size, grown)
	}
	for _, conn := range conns {
		conn.Close()
	}
	if err := locks.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out")
		}
	}
}
