package echolock

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

type userID int

func (userID) String() string { return "u-7" }

func TestValue(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	values := map[string]any{"string": "anna", "int": 7, "stringer": userID(7), "empty": "", "list": []string{"anna"}, "secret": nil}
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("internal-user", values[c.Param("kind")])
			return next(c)
		}
	}
	s.echo.GET("/:kind", answerLock, authenticate, New(locktest.NewLocks(t), by(Value("internal-user"))))
	s.Want("GET", "/string", 200, "reqlock:anna,")
	s.Want("GET", "/int", 200, "reqlock:7,")
	s.Want("GET", "/stringer", 200, "reqlock:u-7,")
	for kind, problem := range map[string]string{"secret": "key-missing", "empty": "key-missing", "list": "key-invalid"} {
		s.Want("GET", "/"+kind, 400, problem)
		s.WantNot("GET", "/"+kind, "internal-user", "Context", "[]string")
	}
}

// The scope of an idempotency key may be such a value as well.
func TestValue_Scope(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	runs := 0
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("user", c.Request().Header.Get("X-User"))
			return next(c)
		}
	}
	s.echo.POST("/pay", func(c echo.Context) error {
		runs++
		return c.NoContent(http.StatusCreated)
	}, authenticate, Idempotent(locktest.NewLocks(t), idempotency.Config{Scope: Value("user")}))
	as := func(user string) func(*http.Request) { return func(r *http.Request) { r.Header.Set("X-User", user) } }
	for _, test := range []struct {
		user         string
		status, runs int
	}{{"anna", 201, 1}, {"anna", 201, 1}, {"ben", 201, 2}, {"", 400, 2}} {
		if a := s.PostWithKey("/pay", "k", as(test.user)); a.Status != test.status || runs != test.runs {
			t.Errorf("%s: %v after %d runs, want %d and %d", test.user, a, runs, test.status, test.runs)
		}
	}
}

func TestValue_OutsideEcho(t *testing.T) {
	t.Parallel()
	s := locktest.NewServer(t, httplock.New(locktest.NewLocks(t), Config{Key: Value("user")})(http.NotFoundHandler()))
	s.Want("GET", "/", 500, "misconfigured")
	if got := Get(httptest.NewRequest("GET", "/", nil), "user"); got != nil {
		t.Errorf("Get: %v", got)
	}
	locktest.WantPanic(t, `Value(""): want the name`, func() { Value("") })
}
