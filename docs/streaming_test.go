package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// The handlers of docs/guides/waiting.md that release the lock early, and the functions they
// call. They report the state of the lock through the context.

type locksKey struct{}

// isFree reports whether the lock "reqlock:k" is free.
func isFree(ctx context.Context) string {
	locked, err := ctx.Value(locksKey{}).(*core.Client).Lock("reqlock:k").IsLocked(context.WithoutCancel(ctx))
	return fmt.Sprintf("free: %t %v, context: %v", !locked, err, ctx.Err())
}

func subscribe(ctx context.Context) {
	if got := isFree(ctx); got != "free: false <nil>, context: <nil>" {
		panic(got)
	}
}

func stream(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, isFree(r.Context())) }

func chat(ctx context.Context, conn net.Conn) { fmt.Fprintln(conn, isFree(ctx)) }

func events(w http.ResponseWriter, r *http.Request) {
	subscribe(r.Context()) // needs the lock
	// The stream needs no protection. core.ErrNotHeld: the handler runs without a lock.
	if err := httplock.Release(r.Context()); errors.Is(err, core.ErrLockLost) {
		http.Error(w, "the lock was lost", http.StatusServiceUnavailable)
		return
	}
	stream(w, r) // r.Context() goes on until the handler returns
}

func socket(w http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack() // or any websocket library
	if err != nil {
		http.Error(w, "no connection to take over", http.StatusInternalServerError)
		return
	}
	lease, ok := httplock.Detach(r.Context()) // not released when this handler returns
	if !ok {                                  // the handler runs without a lock
		conn.Close()
		return
	}
	go func() {
		ctx, cancel := lease.Bind(context.WithoutCancel(r.Context())) // ends when the lock is lost
		defer lease.Release(ctx)
		defer cancel()
		defer conn.Close()
		chat(ctx, conn)
	}()
}

func TestLettingGo(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.Const("k"), WaitTime: 10 * time.Second})
	mux := http.NewServeMux()
	mux.Handle("GET /events", lock(http.HandlerFunc(events)))
	mux.Handle("GET /socket", lock(http.HandlerFunc(socket)))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.BaseContext = func(net.Listener) context.Context { return context.WithValue(context.Background(), locksKey{}, locks) }
	srv.Start()
	defer srv.Close()

	open := httplock.New(locks, httplock.Config{Key: func(*http.Request) (string, error) { return "", keyfuncs.ErrSkip }})
	mux.Handle("GET /open/socket", open(http.HandlerFunc(socket)))

	for path, want := range map[string]string{
		"/events":      "free: true <nil>, context: <nil>\n",
		"/socket":      "free: false <nil>, context: <nil>\n",
		"/open/socket": "",
	} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: test\r\n\r\n", path)
		text, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(text), want) || want == "" && len(text) > 0 {
			t.Errorf("%s: %q (%v), want %q", path, text, err, want)
		}
	}
}
