// Package promreqlock exports metrics of locks to Prometheus, for programs without OpenTelemetry.
// The names and labels are those that OpenTelemetry's exporter for Prometheus gives to the metrics
// of otelreqlock, so the dashboards and alerts in deploy serve both. docs/guides/metrics.md lists
// them.
//
//	metrics := promreqlock.New()
//	prometheus.MustRegister(metrics)
//	locks, err := core.New(rdb, core.Options{Observer: metrics.Observer(core.Observer{})})
//	metrics.Watch("", locks)
//	lock := httplock.New(locks, httplock.Config{Key: key, Observe: metrics.Observe})
//	once := httplock.Idempotent(locks, idempotency.Config{Scope: scope, Observe: metrics.ObserveIdempotent})
package promreqlock
