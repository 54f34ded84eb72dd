package main

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/otelreqlock"
	"github.com/reqlock/reqlock/promreqlock"
)

// metrics are those of locks, and a handler that Prometheus scrapes.
type metrics struct {
	telemetry
	handler http.Handler
}

// telemetry is a *otelreqlock.Telemetry or a *promreqlock.Collector.
type telemetry interface {
	Observer(own core.Observer) core.Observer
	Watch(name string, locks *core.Client) (stop func())
	Observe(r *http.Request, o guard.Outcome)
	ObserveIdempotent(r *http.Request, o guard.Outcome)
}

func newMetrics(exporter string) (*metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}) // which has exemplars
	switch exporter {
	case "otel":
		t := otelreqlock.New(otelreqlock.Options{})
		exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithProducer(t))
		if err != nil {
			return nil, err
		}
		otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))
		return &metrics{t, handler}, nil
	case "prom":
		c := promreqlock.New()
		return &metrics{c, handler}, registry.Register(c)
	}
	return nil, fmt.Errorf("-metrics is %q; use otel or prom", exporter)
}
