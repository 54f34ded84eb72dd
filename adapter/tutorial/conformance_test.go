// Package tutorial has the code of adapter/README.md: a framework, an adapter for it, and the
// suite.
package tutorial

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reqlock/reqlock/adapter/adaptertest"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

var onWeb = adaptertest.Adapter{Name: "web", Router: router, NoCoalesce: "This adapter does not offer it."}

func TestMain(m *testing.M)        { adaptertest.Main(m, onWeb) }
func TestConformance(t *testing.T) { adaptertest.Run(t, onWeb) }

func router(locks *core.Client, routes ...adaptertest.Route) http.Handler {
	router := &Router{}
	for _, route := range routes {
		chain := adaptertest.Layers(route,
			func(cfg guard.Config) Middleware { return New(locks, cfg) },
			func(cfg idempotency.Config) Middleware { return Idempotent(locks, cfg) })
		router.Handle(route.Method, route.Pattern, func(c *Context) { route.Serve(c.Writer, c.Request, c.Param) }, chain...)
	}
	return router
}

func TestValue(t *testing.T) {
	t.Parallel()
	authenticate := func(next Handler) Handler {
		return func(c *Context) {
			c.Set("user", "anna")
			next(c)
		}
	}
	router := &Router{}
	router.Handle("GET", "/", func(c *Context) {
		lease, _ := guard.LeaseFrom(c.Request.Context())
		_, _ = c.Writer.Write([]byte(lease.Name()))
	}, authenticate, New(locktest.NewLocks(t), guard.Config{Key: Value("user")}))
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Body.String() != "reqlock:anna" {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
}
