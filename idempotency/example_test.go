package idempotency_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// A client that repeats a payment gets the answer of the first run. Another payment with the same
// key is refused.
func Example() {
	redis, err := embedded.Start() // in production, a Redis that all servers share
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	payments := 0
	pay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		payments++
		fmt.Fprintf(w, "payment %d", payments)
	})
	once := httplock.Idempotent(locks, idempotency.Config{
		Scope: keyfuncs.Header("Account"), // in production, what your authentication knows
	})
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once(pay))

	for _, amount := range []string{"10", "10", "99"} {
		r := httptest.NewRequest("POST", "/payments", strings.NewReader(amount))
		r.Header.Set("Account", "anna")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%s: %d, replayed %q\n", amount, w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	fmt.Println("payments:", payments)
	// Output:
	// 10: 200, replayed ""
	// 10: 200, replayed "true"
	// 99: 422, replayed ""
	// payments: 1
}
