package docs_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/reqlock/reqlock/keyfuncs"
	echolock "github.com/reqlock/reqlock/middleware/echo"
	ginlock "github.com/reqlock/reqlock/middleware/gin"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

func TestMounted(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	oneAtATime := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id")})
	pay := http.HandlerFunc(held)
	payGin := func(c *gin.Context) { held(c.Writer, c.Request) }
	payEcho := func(c echo.Context) error { held(c.Response(), c.Request()); return nil }

	for name, h := range map[string]http.Handler{
		"net/http": func() http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}/pay", oneAtATime(pay)) // around the handler, not the mux
			return mux
		}(),
		"chi": func() http.Handler {
			router := chi.NewRouter()
			// Call With or Group, not Use at the top: chi has not matched there.
			router.With(oneAtATime).Post("/orders/{id}/pay", pay)
			return router
		}(),
		"chi, in a group": func() http.Handler {
			router := chi.NewRouter()
			router.Group(func(r chi.Router) {
				r.Use(oneAtATime)
				r.Post("/orders/{id}/pay", pay)
			})
			return router
		}(),
		"Gin": func() http.Handler {
			lock := ginlock.New(locks, ginlock.Config{Key: keyfuncs.PathValue("id")})
			router := gin.New()
			router.POST("/orders/:id/pay", lock, payGin) // or router.Use(lock), or on a group
			return router
		}(),
		"Echo": func() http.Handler {
			lock := echolock.New(locks, echolock.Config{Key: keyfuncs.PathValue("id")})
			e := echo.New()
			e.POST("/orders/:id/pay", payEcho, lock) // or e.Use(lock), or on a group; not e.Pre
			return e
		}(),
		"inside a TimeoutHandler": func() http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}/pay", http.TimeoutHandler(oneAtATime(pay), 5*time.Second, "too slow"))
			return mux
		}(),
	} {
		if got, want := answerOf(h, post("/orders/42/pay")), "200 reqlock:42"; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// A cross-origin script can read the refusal and Retry-After.
func TestCORS(t *testing.T) {
	t.Parallel()
	locks := newLocks(t)
	hold(t, locks, "reqlock:k")
	e := echo.New()
	e.Use(middleware.CORSWithConfig(middleware.CORSConfig{
		AllowOrigins:  []string{"https://shop.example"},
		ExposeHeaders: []string{"Retry-After"},
	}))
	e.POST("/", func(echo.Context) error { return nil }, echolock.New(locks, echolock.Config{Key: keyfuncs.Const("k")}))
	r, w := post("/"), httptest.NewRecorder()
	r.Header.Set("Origin", "https://shop.example")
	e.ServeHTTP(w, r)
	h := w.Header()
	if w.Code != 409 || h.Get("Retry-After") != "1" || h.Get("Access-Control-Expose-Headers") != "Retry-After" || h.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("answer %d %v", w.Code, h)
	}
	r, w = httptest.NewRequest(http.MethodOptions, "/", nil), httptest.NewRecorder()
	r.Header.Set("Origin", "https://shop.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	e.ServeHTTP(w, r)
	if w.Code != 204 || !strings.Contains(w.Header().Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("preflight: status %d %v", w.Code, w.Header())
	}
}
