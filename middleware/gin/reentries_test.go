package ginlock

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A lookups context counts the lookups that reach it.
type lookups struct {
	context.Context
	n atomic.Int64
}

func (c *lookups) Value(key any) any {
	c.n.Add(1)
	return c.Context.Value(key)
}

// manyEntries is fewer under the race detector, whose stack is smaller than Go's.
var manyEntries = 10_000

// A handler may enter the engine again thousands of times, as Gin's own
// TestEngineHandleContextManyReEntries does. Each entry costs the same: it does not look through
// the contexts of all entries before it.
func TestHandleContext_ManyReEntries(t *testing.T) {
	t.Parallel()
	for name, middleware := range map[string]gin.HandlerFunc{
		"one lock":        New(locktest.NewLocks(t), Config{Key: keyfuncs.Const("k")}),
		"a lock of each":  New(locktest.NewLocks(t), Config{Key: keyfuncs.PathValue("count")}),
		"with MaxHold":    New(locktest.NewLocks(t), Config{Key: keyfuncs.PathValue("count"), MaxHold: time.Hour}),
		"idempotency key": Idempotent(locktest.NewLocks(t), idempotency.Config{Scope: idempotency.ScopeGlobal}),
	} {
		t.Run(name, func(t *testing.T) {
			asked := func(entries int) int64 {
				runs := 0
				r := gin.New()
				r.Use(middleware)
				r.POST("/:count", func(c *gin.Context) {
					runs++
					if count, _ := strconv.Atoi(c.Param("count")); count > 1 {
						c.Request.URL.Path = "/" + strconv.Itoa(count-1)
						r.HandleContext(c)
					}
				})
				ctx := &lookups{Context: t.Context()}
				req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/"+strconv.Itoa(entries), nil)
				req.Header.Set("Idempotency-Key", strconv.Itoa(entries))
				w := httptest.NewRecorder()
				r.ServeHTTP(w, req)
				if w.Code != http.StatusOK || runs != entries {
					t.Fatalf("answer %d after %d runs, want 200 after %d", w.Code, runs, entries)
				}
				return ctx.n.Load()
			}
			began := time.Now()
			// An acquire whose context can end asks it twice more once its client has dialed a line.
			if few, many := asked(2), asked(manyEntries); many > few+2 {
				t.Errorf("2 entries ask the request's context %d times, %d entries %d times", few, manyEntries, many)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("%d entries took %s", manyEntries, took)
			}
		})
	}
}
