package otelreqlock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	registry "github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
	"github.com/reqlock/reqlock/otelreqlock"
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

	telemetry := otelreqlock.New(otelreqlock.Options{})
	exporter, err := prometheus.New(prometheus.WithProducer(telemetry)) // or another reader
	if err != nil {
		log.Fatal(err)
	}
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))
	locks, err := core.New(rdb, core.Options{Observer: telemetry.Observer(core.Observer{})})
	if err != nil {
		log.Fatal(err)
	}
	telemetry.Watch("", locks)
	oneAtATime := httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id"), Observe: telemetry.Observe})
	mux.Handle("POST /orders/{id}/pay", oneAtATime(pay))

	defer locks.Close(context.Background())
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/42/pay", nil))
	families, err := registry.DefaultGatherer.Gather()
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
