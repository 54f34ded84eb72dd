// Package otelreqlock exports metrics and traces of locks by OpenTelemetry. docs/guides/metrics.md
// lists them. A Telemetry is a metric.Producer: give it to the reader or exporter of your metrics.
//
//	telemetry := otelreqlock.New(otelreqlock.Options{})
//	exporter, err := prometheus.New(prometheus.WithProducer(telemetry)) // or metric.NewPeriodicReader
//	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))
//	locks, err := core.New(rdb, core.Options{Observer: telemetry.Observer(core.Observer{})})
//	telemetry.Watch("", locks)
//	lock := httplock.New(locks, httplock.Config{Key: key, Observe: telemetry.Observe})
//	once := httplock.Idempotent(locks, idempotency.Config{Scope: scope, Observe: telemetry.ObserveIdempotent})
//
// Observer measures how long calls of Acquire and holds take, and traces them. Watch adds the
// numbers of a client: locks held, waiters, losses, hand-overs, errors of Redis. Observe and
// ObserveIdempotent count requests, and WatchPlugin calls of a WebAssembly plugin.
//
// If the context of Acquire has a sampled span, the call gets a child span "lock acquire", and its
// hold a child span "lock hold", each made at its end. Calls without one are measured but not
// traced. The span of a call that had to wait links to the span of the holder, if that is in the
// same process. Durations of sampled calls are exemplars.
//
// The metrics are a Producer, and not instruments of a MeterProvider, because recording two
// durations by the SDK's histograms takes a tenth of the time of a lock. They are cumulative, and
// views do not apply to them.
package otelreqlock
