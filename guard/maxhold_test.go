package guard_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A connection records its write deadlines.
type connection struct {
	http.ResponseWriter
	deadlines chan time.Time
}

func newConnection() *connection {
	return &connection{httptest.NewRecorder(), make(chan time.Time, 10)}
}

func (c *connection) SetWriteDeadline(d time.Time) error {
	c.deadlines <- d
	return nil
}

// next returns the next deadline.
func (c *connection) next(t *testing.T) time.Time {
	t.Helper()
	select {
	case d := <-c.deadlines:
		return d
	case <-time.After(30 * time.Second):
		t.Fatal("there is no write deadline")
		return time.Time{}
	}
}

// A stateful writer, as one of Caddy, must not be used by two goroutines.
type stateful struct {
	http.ResponseWriter
	deadline time.Time
}

func (w *stateful) SetWriteDeadline(d time.Time) error {
	w.deadline = d
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(d)
}

func (w *stateful) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func guarded(t *testing.T, locks *core.Client, cfg guard.Config) *guard.Guard {
	t.Helper()
	cfg.MaxHold, cfg.Logger = time.Millisecond, slog.New(slog.DiscardHandler)
	g, err := guard.New(locks, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A handler that still runs some time after MaxHold, but before its lease ends, can write no more,
// until it returns or has given up its lock.
func TestMaxHold_Answer(t *testing.T) {
	t.Parallel()
	const timeout = time.Hour
	release := func(ctx context.Context) error { return guard.Release(ctx) }
	detach := func(ctx context.Context) error {
		lease, _ := guard.Detach(ctx)
		return lease.Release(ctx)
	}
	for name, test := range map[string]struct {
		server *http.Server
		give   func(context.Context) error // the lock, in the handler
	}{
		"until the handler returns": {nil, nil},
		"with a WriteTimeout":       {&http.Server{WriteTimeout: timeout}, nil},
		"until Release":             {nil, release},
		"until Detach":              {nil, detach},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guarded(t, locktest.NewLocks(t), guard.Config{Key: keyfuncs.Const("k"), LeaseTime: 4 * time.Second})
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			if test.server != nil {
				r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, test.server))
			}
			c := newConnection()
			over := func() {
				t.Helper()
				switch last := c.next(t); {
				case test.server == nil && !last.IsZero():
					t.Errorf("afterwards the deadline is %s, want none", last)
				case test.server != nil && (time.Until(last) < timeout/2 || time.Until(last) > timeout):
					t.Errorf("afterwards the deadline is %s, want the server's", last)
				}
			}
			g.Serve(&stateful{ResponseWriter: c}, r, func(w http.ResponseWriter, r *http.Request) {
				w.(*stateful).deadline = time.Time{} // as it writes, on its own goroutine
				if first := c.next(t); first.IsZero() || time.Until(first) > 0 {
					t.Errorf("the deadline is %s, want one that is over", first)
				}
				if lease, _ := guard.LeaseFrom(r.Context()); lease.Err() != nil {
					t.Errorf("the lease has ended: %v", lease.Err())
				}
				if test.give != nil {
					if err := test.give(r.Context()); err != nil {
						t.Error(err)
					}
					over()
				}
			})
			if test.give == nil {
				over()
			}
			if len(c.deadlines) > 0 {
				t.Errorf("there are %d more deadlines", len(c.deadlines))
			}
		})
	}
}

// A handler that heeds the end of its context leaves the connection as it was.
func TestMaxHold_AnswerInTime(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context) error{
		"returns":  func(context.Context) error { return nil },
		"releases": func(ctx context.Context) error { return guard.Release(ctx) },
	} {
		g := guarded(t, locktest.NewLocks(t), guard.Config{Key: keyfuncs.Const("k")})
		c := newConnection()
		g.Serve(c, httptest.NewRequest(http.MethodGet, "/", nil), func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if err := end(r.Context()); err != nil {
				t.Error(err)
			}
		})
		if len(c.deadlines) > 0 {
			t.Errorf("a handler that %s: there is a deadline", name)
		}
	}
}

// What an outer guard has ended stays so when an inner guard's handler returns.
func TestMaxHold_AnswerNested(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	outer := guarded(t, locks, guard.Config{Key: keyfuncs.Const("outer"), LeaseTime: 4 * time.Second})
	inner := guarded(t, locks, guard.Config{Key: keyfuncs.Const("inner"), LeaseTime: 4 * time.Second})
	c, ran := newConnection(), false
	outer.Serve(c, httptest.NewRequest(http.MethodGet, "/", nil), func(_ http.ResponseWriter, r *http.Request) {
		c.next(t)
		inner.Serve(c, r.WithContext(context.WithoutCancel(r.Context())), func(http.ResponseWriter, *http.Request) {
			ran = true
			c.next(t)
		})
		if len(c.deadlines) > 0 {
			t.Errorf("when the inner handler has returned, the deadline becomes %s", c.next(t))
		}
	})
	if !ran {
		t.Fatal("the inner handler did not run")
	}
	if last := c.next(t); !last.IsZero() {
		t.Errorf("afterwards the deadline is %s, want none", last)
	}
}
