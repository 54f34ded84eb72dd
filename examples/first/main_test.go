package main

import (
	"net/http/httptest"
	"os"
	"syscall"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/examples/internal/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m) }

// Ctrl-C and SIGTERM end the program. -help shows its flag.
func TestProgram(t *testing.T) {
	t.Parallel()
	help := demotest.Start(t, "", "-help")
	help.EndSaying(t, "-addr host:port")
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p := demotest.Start(t, "")
		p.Until(t, "POST   /orders/:id/pay")
		p.Signal(t, sig)
		p.End(t, 0)
	}
}

// The second request for an order that is being paid gets 409. One for another order runs.
func TestFirst(t *testing.T) {
	gin.SetMode(gin.TestMode)
	redis, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	lease, err := locks.Lock("reqlock:order:42").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context())

	router := routes(locks)
	for path, want := range map[string]int{"/orders/42/pay": 409, "/orders/43/pay": 200} {
		w := httptest.NewRecorder()
		if router.ServeHTTP(w, httptest.NewRequest("POST", path, nil)); w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
}
