package httplock

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A batch endpoint passes its items to the router, all at once. Items with one Idempotency-Key run
// once, with a guard around the batch and without.
func TestIdempotent_Batch(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	for name, around := range map[string]func(http.Handler) http.Handler{
		"guarded":   New(locks, Config{Key: keyfuncs.Const("order")}),
		"unguarded": func(h http.Handler) http.Handler { return h },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int32
			var arrived sync.WaitGroup // items that run, or have their answer
			arrived.Add(3)
			mux := http.NewServeMux()
			mux.Handle("POST /items", Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					runs.Add(1)
					arrived.Done()
					arrived.Wait()
					w.WriteHeader(http.StatusCreated)
				})))
			mux.Handle("POST /batch", around(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				var items sync.WaitGroup
				for range 3 {
					items.Go(func() {
						item, w := r.Clone(r.Context()), httptest.NewRecorder()
						item.URL.Path = "/items"
						mux.ServeHTTP(w, item)
						if w.Code != http.StatusCreated {
							arrived.Done()
						}
					})
				}
				items.Wait()
			})))
			if a := locktest.NewServer(t, mux).PostWithKey("/batch", name); a.Status != http.StatusOK {
				t.Errorf("answer %v", a)
			}
			if n := runs.Load(); n != 1 {
				t.Errorf("the items ran %d times, want once", n)
			}
		})
	}
}

// A lookups context counts the lookups that reach it.
type lookups struct {
	context.Context
	n atomic.Int64
}

func (c *lookups) Value(key any) any {
	c.n.Add(1)
	return c.Context.Value(key)
}

// Guards inside each other ask the context that the request came with no more often than one does,
// whatever they lock. Otherwise each guard would add the contexts of all others to its own cost.
func TestNew_NestedLookups(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	for name, middleware := range map[string]func(level int) func(http.Handler) http.Handler{
		"one name": func(int) func(http.Handler) http.Handler { return New(locks, Config{Key: keyfuncs.Const("k")}) },
		"other names": func(level int) func(http.Handler) http.Handler {
			return New(locks, Config{Key: keyfuncs.Const("k" + strconv.Itoa(level))})
		},
		"idempotent": func(int) func(http.Handler) http.Handler {
			return Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})
		},
	} {
		asked := func(levels int) int64 {
			var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			for level := range levels {
				h = middleware(level)(h)
			}
			ctx := &lookups{Context: t.Context()}
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", name+strconv.Itoa(levels))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d guards: answer %d %s", name, levels, w.Code, w.Body)
			}
			return ctx.n.Load()
		}
		// An acquire whose context can end asks it twice more once its client has dialed a line.
		if few, many := asked(2), asked(100); many > few+2 {
			t.Errorf("%s: 2 guards ask %d times, 100 ask %d times", name, few, many)
		}
	}
}
