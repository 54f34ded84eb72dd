package promreqlock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
	"github.com/reqlock/reqlock/promreqlock"
)

func Example() {
	srv, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	rdb := srv.Client()
	mux := http.NewServeMux()
	pay := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

	metrics := promreqlock.New()
	prometheus.MustRegister(metrics)
	locks, err := core.New(rdb, core.Options{Observer: metrics.Observer(core.Observer{})})
	if err != nil {
		log.Fatal(err)
	}
	metrics.Watch("", locks)
	oneAtATime := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id"), Observe: metrics.Observe})
	mux.Handle("POST /orders/{id}/pay", oneAtATime(pay))

	defer locks.Close(context.Background())
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "reqlock_requests") {
			fmt.Println(name, f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	// Output: reqlock_requests_total 1
}
