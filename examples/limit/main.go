// Limit is a web server that exports three at a time for each tenant. The others wait their turn.
//
//	go run ./examples/limit         shows eight exports, then serves until Ctrl-C
//	go run ./examples/limit -once   exits after the demonstration
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
	limit    = 3
	waitTime = 2 * time.Second
	workTime = 500 * time.Millisecond
)

func main() {
	demo.Main(demo.Program{Name: "limit", What: "Exports", Open: open, Demonstrate: demonstrate, Invite: invitation})
}

func open(rdb *redis.Client) (*core.Client, http.Handler, error) {
	locks, err := core.New(rdb, core.Options{}) // demo.Main closes them with the server
	if err != nil {
		return nil, nil, err
	}
	exports := httplock.New(locks, httplock.Config{
		Key:      keyfuncs.Prefix("exports:", keyfuncs.PathValue("tenant")),
		Limit:    limit,    // at a time for each tenant, over all processes
		WaitTime: waitTime, // 429 after that
	})
	mux := http.NewServeMux()
	mux.Handle("POST /{tenant}/exports", exports(http.HandlerFunc(export)))
	return locks, mux, nil
}

// export stands in for work that a database bears three times at once, and not eight times.
func export(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	// The client disconnected, or the permit is lost.
	if err := demo.Work(r.Context(), workTime); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	demo.Time(w.Header(), began)
	fmt.Fprintf(w, "an export of %s is ready\n", r.PathValue("tenant"))
}
