// Nethttp is a web server whose reports are made by one request at a time. Few others wait, and not
// for long: an unbounded queue would take memory and connections for answers that no client still
// waits for.
//
//	go run ./examples/nethttp         shows a full queue, then serves until Ctrl-C
//	go run ./examples/nethttp -once   exits after the demonstration
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
	waitTime   = 1500 * time.Millisecond
	maxWaiters = 2
	workTime   = time.Second
)

func main() {
	demo.Main(demo.Program{Name: "nethttp", What: "Reports", Open: open, Demonstrate: demonstrate, Invite: invitation})
}

func open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	locks, err := core.New(rdb, core.Options{}) // demo.Main closes them with the server
	if err != nil {
		return nil, nil, err
	}
	oneAtATime := httplock.New(locks, httplock.Config{
		Key:        keyfuncs.Prefix("report:", keyfuncs.PathValue("id")),
		WaitTime:   waitTime,   // 409 after that
		MaxWaiters: maxWaiters, // 503 at once for one more, in this process
		RetryAfter: workTime,   // the hint in both answers
	})
	mux := http.NewServeMux()
	mux.Handle("POST /reports/{id}", oneAtATime(http.HandlerFunc(report)))
	return locks, mux, nil
}

// report stands in for work that concurrent requests would do twice.
func report(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	// The client disconnected, or the lock is lost.
	if err := demo.Work(r.Context(), workTime); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	demo.Time(w.Header(), began)
	fmt.Fprintf(w, "report %s is ready\n", r.PathValue("id"))
}
