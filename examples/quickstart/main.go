// Quickstart is a web server whose orders are paid and shipped by one request at a time.
//
//	go run ./examples/quickstart         shows colliding requests, then serves until Ctrl-C
//	go run ./examples/quickstart -once   exits after the demonstration
//
// It needs only Go: Redis runs inside the process unless REDIS_URL is set.
package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

const (
	waitTime = 5 * time.Second
	workTime = 500 * time.Millisecond
)

func main() {
	demo.Main(demo.Program{Name: "quickstart", What: "A shop", Open: open, Demonstrate: demonstrate, Invite: demo.OrdersByHand})
}

// open is all the code that reqlock needs: create the locks and a middleware, and wrap a route's
// handler.
func open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	locks, err := core.New(rdb, core.Options{}) // demo.Main closes them with the server
	if err != nil {
		return nil, nil, err
	}
	// One lock per order on both routes: an order is not shipped while it is being paid.
	order := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))
	refuse := httplock.New(locks, httplock.Config{Key: order}) // 409 at once
	// 409 after five seconds.
	wait := httplock.New(locks, httplock.Config{Key: order, WaitTime: waitTime})

	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", refuse(work("paid")))
	mux.Handle("POST /orders/{id}/ship", wait(work("shipped")))
	return locks, mux, nil
}

// work stands in for work that must not run twice at once, such as a call to a payment provider.
func work(done string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		// The client disconnected, or the lock is lost.
		if err := demo.Work(r.Context(), workTime); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		demo.Time(w.Header(), began)
		fmt.Fprintf(w, "order %s is %s\n", r.PathValue("id"), done)
	})
}
