package redistest

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// wire is a client that sends and expects exact bytes.
type wire struct {
	t    *testing.T
	conn net.Conn
	in   *respReader
}

// dial connects with RESP2 or RESP3.
func dial(t *testing.T, addr string, protocol int) *wire {
	t.Helper()
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w := &wire{t: t, conn: conn, in: newRESPReader(conn)}
	if protocol == 3 {
		w.send("HELLO 3")
		if f := w.read(); f.kind != '%' {
			t.Fatalf("HELLO 3: %q", f.raw)
		}
	}
	return w
}

// send writes commands in one piece. Words are separated by spaces.
func (w *wire) send(commands ...string) {
	w.t.Helper()
	var raw []byte
	for _, c := range commands {
		raw = append(raw, encode(strings.Split(c, " ")...)...)
	}
	w.write(string(raw))
}

func (w *wire) write(raw string) {
	w.t.Helper()
	if _, err := w.conn.Write([]byte(raw)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) read() frame {
	w.t.Helper()
	_ = w.conn.SetReadDeadline(time.Now().Add(patience))
	f, err := w.in.reply()
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

// want expects these frames next.
func (w *wire) want(frames ...string) {
	w.t.Helper()
	for _, want := range frames {
		if f := w.read(); string(f.raw) != want {
			w.t.Fatalf("got %q, want %q", f.raw, want)
		}
	}
}

// wantEnd expects the end of the connection next.
func (w *wire) wantEnd() {
	w.t.Helper()
	_ = w.conn.SetReadDeadline(time.Now().Add(patience))
	f, err := w.in.reply()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("got %q, %v, want the end of the connection", f.raw, err)
	}
}

// wantSilence expects an open connection on which nothing arrives for a moment. A slow machine
// cannot make it fail.
func (w *wire) wantSilence() {
	w.t.Helper()
	_ = w.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	f, err := w.in.reply()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("got %q, %v, want nothing", f.raw, err)
	}
}

func (w *wire) hangUp() {
	w.t.Helper()
	if err := w.conn.Close(); err != nil {
		w.t.Fatal(err)
	}
}
