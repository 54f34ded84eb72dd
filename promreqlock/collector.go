package promreqlock

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/telemetry"
)

// A Collector collects metrics of locks for Prometheus. Its methods may be called from any
// goroutine. There is nothing to close.
type Collector struct {
	recorder telemetry.Recorder
	descs    map[telemetry.Metric]*prometheus.Desc
}

// New returns a Collector. Register it with a prometheus.Registerer.
func New() *Collector {
	c := &Collector{descs: make(map[telemetry.Metric]*prometheus.Desc)}
	for _, m := range telemetry.All {
		d := m.Describe()
		labels := make([]string, len(d.Attributes))
		for i, attribute := range d.Attributes {
			labels[i] = telemetry.Label(attribute)
		}
		c.descs[m] = prometheus.NewDesc(d.Prometheus(), d.Help, labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for m, points := range c.recorder.Collect() {
		for _, p := range points {
			metrics <- c.metric(m, p)
		}
	}
}

func (c *Collector) metric(m telemetry.Metric, p telemetry.Point) prometheus.Metric {
	d := m.Describe()
	labels := labelValues(d.Attributes, p.Attributes)
	switch d.Type {
	case telemetry.Histogram:
		return prometheus.MustNewConstHistogram(c.descs[m], p.Durations.Count, p.Durations.Sum.Seconds(), cumulative(p.Durations), labels...)
	case telemetry.Counter:
		return prometheus.MustNewConstMetric(c.descs[m], prometheus.CounterValue, p.Value, labels...)
	}
	return prometheus.MustNewConstMetric(c.descs[m], prometheus.GaugeValue, p.Value, labels...)
}

// cumulative returns how many durations each bound has, as Prometheus wants it.
func cumulative(d *telemetry.Snapshot) map[float64]uint64 {
	counts := make(map[float64]uint64)
	var sum uint64
	for i, bound := range telemetry.Bounds() {
		sum += d.Counts[i]
		counts[bound] = sum
	}
	return counts
}

// labelValues returns the values of a metric's labels. Those without an attribute are empty, which
// is to Prometheus as if they were not there.
func labelValues(labels []string, attributes []telemetry.Attribute) []string {
	values := make([]string, len(labels))
	for i, label := range labels {
		for _, a := range attributes {
			if a.Key == label {
				values[i] = a.Value
			}
		}
	}
	return values
}

// Observer returns an Observer for core.Options that calls own, which may be the zero Observer, and
// then records durations.
func (c *Collector) Observer(own core.Observer) core.Observer { return c.recorder.Observer(own) }

// Watch adds a client to the metrics: its locks, waiters, losses, hand-overs and errors of Redis.
// They are read at each collection, which takes about a millisecond for 5,000 holds and waiters. A
// program with several clients gives each its own name, which becomes the label reqlock_client; "":
// no label. A client takes the place of the one that was watched with its name. stop ends the watch;
// call it when you close the client.
func (c *Collector) Watch(name string, locks *core.Client) (stop func()) {
	return c.recorder.Watch(name, locks)
}

// WatchPlugin adds the calls of a WebAssembly plugin, by outcome. calls is a *wasm.Plugin. name
// becomes the label reqlock_plugin. Names and stop are as in Watch.
func (c *Collector) WatchPlugin(name string, calls interface{ Calls() map[string]uint64 }) (stop func()) {
	return c.recorder.WatchPlugin(name, calls)
}

// Observe is for guard.Config.Observe. It counts requests.
func (c *Collector) Observe(r *http.Request, o guard.Outcome) { c.recorder.Observe(r, o) }

// ObserveIdempotent is for idempotency.Config.Observe. It counts requests.
func (c *Collector) ObserveIdempotent(r *http.Request, o guard.Outcome) {
	c.recorder.ObserveIdempotent(r, o)
}

// ObserveCoalesced is for coalesce.Config.Observe. It counts requests.
func (c *Collector) ObserveCoalesced(r *http.Request, o guard.Outcome) {
	c.recorder.ObserveCoalesced(r, o)
}
