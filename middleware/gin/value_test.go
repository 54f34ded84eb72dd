package ginlock

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
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
	authenticate := func(c *gin.Context) { c.Set("internal-user", values[c.Param("kind")]) }
	s.engine.GET("/:kind", authenticate, New(locktest.NewLocks(t), Config{Key: Value("internal-user")}), answerLock)
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
	s.engine.POST("/pay", func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) },
		Idempotent(locktest.NewLocks(t), idempotency.Config{Scope: Value("user")}),
		func(c *gin.Context) { runs++; c.Status(http.StatusCreated) })
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

func TestValue_OutsideGin(t *testing.T) {
	t.Parallel()
	s := locktest.NewServer(t, httplock.New(locktest.NewLocks(t), Config{Key: Value("user")})(http.NotFoundHandler()))
	s.Want("GET", "/", 500, "misconfigured")
	if got := Get(httptest.NewRequest("GET", "/", nil), "user"); got != nil {
		t.Errorf("Get: %v", got)
	}
	locktest.WantPanic(t, `Value(""): want the name`, func() { Value("") })
}
