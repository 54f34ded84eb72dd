package httplock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// One payment of an order at a time, whatever the number of servers.
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

	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id")})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(pay)))
	server = httptest.NewServer(mux)
	defer server.Close()

	fmt.Println("order 1:", post("/orders/1/pay"))
	// Output:
	// order 1 once more, meanwhile: 409 Conflict
	// order 2, meanwhile: 200 OK
	// order 1: 200 OK
}

var server *httptest.Server

// pay shows the answers to other requests while the payment of the first order runs.
func pay(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") == "1" {
		fmt.Println("order 1 once more, meanwhile:", post("/orders/1/pay"))
		fmt.Println("order 2, meanwhile:", post("/orders/2/pay"))
	}
}

func post(path string) string {
	response, err := server.Client().Post(server.URL+path, "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	return response.Status
}

// A handler that calls another service, under its lock and once for each idempotency key, needs no
// other import.
func ExampleLeaseFrom() {
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

	lock := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id")})
	once := httplock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", once(lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, ok := httplock.LeaseFrom(r.Context())
		fmt.Printf("under %s: %t\n", lease.Name(), ok)
		key, _ := httplock.KeyFrom(r.Context())
		charge := httplock.DownstreamKey(r.Context(), "bank", "charge")
		fmt.Printf("idempotency key %s, the same for another service: %t\n", key, charge == httplock.DownstreamKey(r.Context(), "bank", "charge"))
		httplock.StoreFor(r.Context(), time.Hour) // the answer for repeats
		err := httplock.Release(r.Context())
		_, ok = httplock.LeaseFrom(r.Context())
		fmt.Printf("released: %v, again under a lock: %t\n", err, ok)
	}))))
	request := httptest.NewRequest("POST", "/orders/1/pay", nil)
	request.Header.Set("Idempotency-Key", "k-1")
	mux.ServeHTTP(httptest.NewRecorder(), request)
	// Output:
	// under reqlock:1: true
	// idempotency key k-1, the same for another service: true
	// released: <nil>, again under a lock: false
}

// The routes and their locks stand in a file.
func ExampleFromFile() {
	dir, err := os.MkdirTemp("", "locks-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "locks.json")
	const table = `{"routes": [{"method": "POST", "pattern": "/orders/{id}/pay", "key": "order:{path.id}"}]}`
	if err := os.WriteFile(path, []byte(table), 0o600); err != nil {
		log.Fatal(err)
	}
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

	file, err := httplock.FromFile(locks, path, routes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close(context.Background())
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", file.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		lease, _ := httplock.LeaseFrom(r.Context())
		fmt.Println("paying under the lock", lease.Name())
	})))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/orders/42/pay", nil))
	// Output: paying under the lock reqlock:order:42
}

// A router that does not set the values of a path says how to find them.
func ExampleWithRoute() {
	withRoute := httplock.WithRoute(func(r *http.Request) (pattern string, values map[string]string) {
		id, ok := strings.CutPrefix(r.URL.Path, "/orders/") // in place of your router
		if !ok {
			return "", nil
		}
		return "/orders/{id}", map[string]string{"id": id}
	})
	handler := withRoute(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(keyfuncs.PathValue("id")(r))
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/orders/42", nil))
	// Output: 42 <nil>
}

// Two clients want one report. It is computed once.
func ExampleCoalesce() {
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

	one := httplock.Coalesce(locks, coalesce.Config{User: coalesce.Everyone, Vary: []string{"Accept-Language"}})
	runs := 0
	report := one(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		fmt.Fprint(w, "sold: 7") // in production, the query that takes seconds
	}))
	for range 2 {
		w := httptest.NewRecorder()
		report.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/report", nil))
		fmt.Println(w.Body)
	}
	fmt.Println("runs:", runs)
	// Output:
	// sold: 7
	// sold: 7
	// runs: 1
}

// A service holds the lock of an order, and calls another one that wants the same lock: the call enters
// as its guest.
func ExampleTransport() {
	redis, err := embedded.Start() // In production, use a Redis that both services share.
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	keys, err := delegation.NewKeys([]byte("32 random bytes that both have..")) // In production, read it from a secret store.
	if err != nil {
		log.Fatal(err)
	}
	service := func(name string) *core.Client {
		locks, err := core.New(redis.Client(), core.Options{Delegation: delegation.Service{Keys: keys, Name: name}})
		if err != nil {
			log.Fatal(err)
		}
		return locks
	}
	billing, orders := service("billing"), service("orders")
	defer billing.Close(context.Background())
	defer orders.Close(context.Background())

	order := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))
	guests := httplock.New(billing, httplock.Config{Key: order, Delegates: guard.DelegatesTogether})
	mux := http.NewServeMux()
	mux.Handle("POST /bills/{id}", guests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "billed") })))
	bills := httptest.NewServer(mux)
	defer bills.Close()

	host := strings.TrimPrefix(bills.URL, "http://")
	client := &http.Client{Transport: httplock.Transport(nil, delegation.Config{Hosts: map[string]string{host: "billing"}})}
	defer client.CloseIdleConnections()
	lock := httplock.New(orders, httplock.Config{Key: order})
	mux = http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, bills.URL+"/bills/"+r.PathValue("id"), nil)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := client.Do(call)
		if err != nil {
			log.Fatal(err)
		}
		defer answer.Body.Close()
		fmt.Println("billing answers:", answer.Status)
	})))
	server = httptest.NewServer(mux)
	defer server.Close()
	fmt.Println("orders answers:", post("/orders/42/pay"))
	// Output:
	// billing answers: 200 OK
	// orders answers: 200 OK
}
