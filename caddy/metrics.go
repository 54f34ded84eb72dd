package caddylock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// metrics are what a connection counts. They outlive a configuration, so counters do not fall at a
// reload: each configuration has its own registry, and registers the same metrics there.
type metrics struct {
	acquired *prometheus.HistogramVec
	held     *prometheus.HistogramVec
	lost     *prometheus.CounterVec
	renewals *prometheus.CounterVec
	requests *prometheus.CounterVec
	now      []prometheus.Collector // what is held and waiting now
}

// buckets go from a round trip to a long wait, in seconds.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func newMetrics() *metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "reqlock", Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "reqlock", Name: name, Help: help}, labels)
	}
	return &metrics{
		acquired: histogram("acquire_duration_seconds", "Time from asking for a lock to the outcome.", "kind", "outcome"),
		held:     histogram("hold_duration_seconds", "Time from getting a lock to its release.", "kind"),
		lost:     counter("locks_lost_total", "Locks lost while they were held.", "kind"),
		renewals: counter("renewals_failed_total", "Failed renewals, which are retried.", "kind"),
		requests: counter("requests_total", "Requests by the problem that they were answered with, or none.", "problem"),
	}
}

// follow reports what locks has at the time of a scrape.
func (m *metrics) follow(locks *core.Client) {
	gauge := func(name, help string, value func(core.Stats) int) {
		m.now = append(m.now, prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Namespace: "reqlock", Name: name, Help: help},
			func() float64 { return float64(value(locks.Stats())) }))
	}
	gauge("locks_held", "Locks that this process holds.", func(s core.Stats) int { return s.Held })
	gauge("waiters", "Requests of this process that wait for a lock.", func(s core.Stats) int { return s.Waiting })
}

// register adds the metrics to the registry of a configuration.
func (m *metrics) register(registry *prometheus.Registry) error {
	for _, c := range append([]prometheus.Collector{m.acquired, m.held, m.lost, m.renewals, m.requests}, m.now...) {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("reqlock: caddy: metrics: %w", err)
		}
	}
	return nil
}

// observer counts the events of the locks.
func (m *metrics) observer() core.Observer {
	return core.Observer{
		Acquired: func(_ context.Context, e core.Event) {
			m.acquired.WithLabelValues(e.Kind, "acquired").Observe(e.Waited.Seconds())
		},
		NotAcquired: func(ctx context.Context, e core.Event) {
			m.acquired.WithLabelValues(e.Kind, outcome(ctx, e)).Observe(e.Waited.Seconds())
		},
		Released: func(_ context.Context, e core.Event) {
			m.held.WithLabelValues(e.Kind).Observe(e.Held.Seconds())
		},
		Lost: func(_ context.Context, e core.Event) {
			m.lost.WithLabelValues(e.Kind).Inc()
		},
		RenewFailed: func(_ context.Context, e core.Event) {
			m.renewals.WithLabelValues(e.Kind).Inc()
		},
	}
}

func outcome(ctx context.Context, e core.Event) string {
	switch {
	case ctx.Err() != nil:
		return "abandoned"
	case errors.Is(e.Err, core.ErrNotAcquired) && e.WaitTime != 0:
		return "timeout"
	case errors.Is(e.Err, core.ErrNotAcquired), errors.Is(e.Err, core.ErrTooManyWaiters):
		return "refused"
	}
	return "error"
}

// observe counts a request.
func (m *metrics) observe(_ *http.Request, o guard.Outcome) {
	problem := "none"
	var refusal *guard.Error
	if !o.Ran && errors.As(o.Err, &refusal) {
		problem = strings.TrimPrefix(refusal.Type, "urn:reqlock:problem:")
	}
	m.requests.WithLabelValues(problem).Inc()
}
