package keyfuncs_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/reqlock/reqlock/keyfuncs"
)

// serve stands in for a server with one route. It prints the key of each request.
func serve(pattern string, key keyfuncs.Func, requests ...*http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
		k, err := key(r)
		switch {
		case errors.Is(err, keyfuncs.ErrSkip):
			fmt.Println("no lock")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(k)
		}
	})
	for _, r := range requests {
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
}

func ExamplePathValue() {
	key := keyfuncs.PathValue("id")

	serve("POST /orders/{id}/pay", key,
		httptest.NewRequest("POST", "/orders/42/pay", nil),
		httptest.NewRequest("POST", "/orders/%34%32/pay", nil),
		httptest.NewRequest("POST", "/orders/%00/pay", nil),
	)
	// Output:
	// 42
	// 42
	// reqlock: keyfuncs: path value "id" has control characters in it
}

func ExampleHeader() {
	key := keyfuncs.Header("Idempotency-Key")

	with := httptest.NewRequest("POST", "/payments", nil)
	with.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	without := httptest.NewRequest("POST", "/payments", nil)

	serve("POST /payments", key, with, without)
	// Output:
	// 8e03978e-40d5-43dd-bc93-6894a57f9324
	// reqlock: keyfuncs: header Idempotency-Key is missing
}

func ExampleQuery() {
	key := keyfuncs.Query("account")

	serve("GET /report", key,
		httptest.NewRequest("GET", "/report?account=7", nil),
		httptest.NewRequest("GET", "/report?account=7&account=8", nil),
	)
	// Output:
	// 7
	// reqlock: keyfuncs: query parameter "account" is given more than once
}

func ExampleJoin() {
	key := keyfuncs.Join(keyfuncs.Header("X-Tenant"), keyfuncs.PathValue("id"))

	one := httptest.NewRequest("GET", "/docs/b:c", nil)
	one.Header.Set("X-Tenant", "a")
	two := httptest.NewRequest("GET", "/docs/c", nil)
	two.Header.Set("X-Tenant", "a:b")

	serve("GET /docs/{id}", key, one, two)
	// Output:
	// a:b~:c
	// a~:b:c
}

func ExamplePrefix() {
	key := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))

	serve("GET /orders/{id}", key, httptest.NewRequest("GET", "/orders/42", nil))
	// Output: order:42
}

func ExampleHash() {
	key := keyfuncs.Prefix("mail:", keyfuncs.Hash(keyfuncs.PathValue("address")))

	serve("PUT /newsletter/{address}", key, httptest.NewRequest("PUT", "/newsletter/jane@example.com", nil))
	// Output: mail:8c87b489ce35cf2e2f39f80e282cb2e804932a56a213983eeeb428407d43b52d
}

func ExamplePattern() {
	key := keyfuncs.Pattern()

	serve("POST /reports/{year}", key,
		httptest.NewRequest("POST", "/reports/2025", nil),
		httptest.NewRequest("POST", "/reports/2026", nil),
	)
	// Output:
	// POST /reports/{year}
	// POST /reports/{year}
}

// A custom function: requests that only read are not locked.
func ExampleFunc() {
	writes := func(r *http.Request) (string, error) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return "", keyfuncs.ErrSkip
		}
		return "writes", nil
	}
	key := keyfuncs.Join(writes, keyfuncs.PathValue("id"))

	serve("GET /orders/{id}", key, httptest.NewRequest("GET", "/orders/42", nil))
	serve("PATCH /orders/{id}", key, httptest.NewRequest("PATCH", "/orders/42", nil))
	// Output:
	// no lock
	// writes:42
}
