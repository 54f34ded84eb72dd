package idempotency_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

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

// serve sends the same request twice through an idempotent handler.
func serve(cfg idempotency.Config, handler http.HandlerFunc) {
	redis, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	locks, err := core.New(redis.Client(), core.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	cfg.Scope = idempotency.ScopeGlobal // these services have one caller
	mux := http.NewServeMux()
	mux.Handle("POST /payments", httplock.Idempotent(locks, cfg)(handler))
	for range 2 {
		r := httptest.NewRequest("POST", "/payments", strings.NewReader(`{"amount": 10, "note": "tea"}`))
		r.Header.Set("Idempotency-Key", "8e03978e")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%d %s\n", w.Code, strings.TrimSpace(w.Body.String()))
	}
}

// The bank gets a key of its own, and the same one when a payment runs again after a crash.
func ExampleDownstreamKey() {
	serve(idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		charge := idempotency.DownstreamKey(r.Context(), "bank", "charge")
		refund := idempotency.DownstreamKey(r.Context(), "bank", "refund")
		fmt.Fprintln(w, "two calls, two keys:", charge != refund)
	})
	// Output:
	// 200 two calls, two keys: true
	// 200 two calls, two keys: true
}

// KeyFrom returns the key of the request, such as to store it with the order.
func ExampleKeyFrom() {
	serve(idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		key, ok := idempotency.KeyFrom(r.Context())
		fmt.Fprintln(w, key, ok)
	})
	// Output:
	// 200 8e03978e true
	// 200 8e03978e true
}

// An answer that says "try again" is not kept.
func ExampleNoStore() {
	runs := 0
	serve(idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if runs++; runs == 1 {
			idempotency.NoStore(r.Context())
			fmt.Fprintln(w, "the bank is closed")
			return
		}
		fmt.Fprintln(w, "paid")
	})
	// Output:
	// 200 the bank is closed
	// 200 paid
}

// An offer is valid for a minute, and its answer is kept as long.
func ExampleStoreFor() {
	serve(idempotency.Config{}, func(w http.ResponseWriter, r *http.Request) {
		idempotency.StoreFor(r.Context(), time.Minute)
		fmt.Fprintln(w, "offer 7")
	})
	// Output:
	// 200 offer 7
	// 200 offer 7
}

// The provider was never asked, so a repeat runs, whatever the status says.
func ExampleOutcome() {
	runs := 0
	serve(idempotency.Config{OnUnknown: idempotency.OutcomeRefuse}, func(w http.ResponseWriter, r *http.Request) {
		if runs++; runs == 1 {
			idempotency.Outcome(r.Context()).NothingDone()
			http.Error(w, "no connection to the bank", http.StatusBadGateway)
			return
		}
		fmt.Fprintln(w, "paid")
	})
	// Output:
	// 502 no connection to the bank
	// 200 paid
}

// Handlers that answer 4xx before they have changed anything may run again.
func ExampleStoreSuccess() {
	runs := 0
	serve(idempotency.Config{Store: idempotency.StoreSuccess}, func(w http.ResponseWriter, _ *http.Request) {
		if runs++; runs == 1 {
			http.Error(w, "no money", http.StatusPaymentRequired)
			return
		}
		fmt.Fprintln(w, "paid")
	})
	// Output:
	// 402 no money
	// 200 paid
}

// The amount belongs to the request. A client may change the note.
func ExampleFingerprintFields() {
	same := idempotency.FingerprintFields("/amount")
	serve(idempotency.Config{Fingerprint: same}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "paid") })
	// Output:
	// 200 paid
	// 200 paid
}

// Redis does not see the answers.
func ExampleAEAD() {
	block, err := aes.NewCipher(make([]byte, 32)) // in production, a secret key
	if err != nil {
		log.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		log.Fatal(err)
	}
	serve(idempotency.Config{Codec: idempotency.AEAD(gcm)}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "paid") })
	// Output:
	// 200 paid
	// 200 paid
}

// A service with one caller has one scope. All others need one for each account.
func ExampleScopeGlobal() {
	cfg := idempotency.Config{Scope: idempotency.ScopeGlobal}
	fmt.Println(cfg.Validate())
	// Output: <nil>
}
