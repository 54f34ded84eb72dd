package httplock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
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
