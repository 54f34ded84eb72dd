package otelreqlock

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/reqlock/reqlock/internal/telemetry"
)

var _ metric.Producer = (*Telemetry)(nil)

// Produce implements metric.Producer.
func (t *Telemetry) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now := time.Now()
	points := t.recorder.Collect()
	var metrics []metricdata.Metrics
	for _, m := range telemetry.All {
		if of := points[m]; len(of) > 0 {
			d := m.Describe()
			metrics = append(metrics, metricdata.Metrics{
				Name: d.Name, Description: d.Help, Unit: d.Unit, Data: t.data(d.Type, of, now),
			})
		}
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: metrics}}, nil
}

// data returns the points of a metric.
func (t *Telemetry) data(of telemetry.Type, points []telemetry.Point, now time.Time) metricdata.Aggregation {
	switch of {
	case telemetry.Histogram:
		return metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality, DataPoints: t.histograms(points, now)}
	case telemetry.Gauge:
		return metricdata.Gauge[float64]{DataPoints: numbers[float64](t, points, now)}
	}
	return metricdata.Sum[int64]{
		Temporality: metricdata.CumulativeTemporality,
		IsMonotonic: of == telemetry.Counter,
		DataPoints:  numbers[int64](t, points, now),
	}
}

func numbers[N int64 | float64](t *Telemetry, points []telemetry.Point, now time.Time) []metricdata.DataPoint[N] {
	data := make([]metricdata.DataPoint[N], len(points))
	for i, p := range points {
		data[i] = metricdata.DataPoint[N]{Attributes: set(p.Attributes), StartTime: t.began, Time: now, Value: N(p.Value)}
	}
	return data
}

func (t *Telemetry) histograms(points []telemetry.Point, now time.Time) []metricdata.HistogramDataPoint[float64] {
	data := make([]metricdata.HistogramDataPoint[float64], len(points))
	bounds := telemetry.Bounds()
	for i, p := range points {
		d := p.Durations
		data[i] = metricdata.HistogramDataPoint[float64]{
			Attributes: set(p.Attributes), StartTime: t.began, Time: now,
			Bounds: bounds, BucketCounts: slices.Clone(d.Counts[:]), Count: d.Count, Sum: d.Sum.Seconds(),
			Exemplars: exemplars(d.Exemplars),
		}
	}
	return data
}

func exemplars(of []telemetry.Exemplar) []metricdata.Exemplar[float64] {
	data := make([]metricdata.Exemplar[float64], len(of))
	for i, x := range of {
		data[i] = metricdata.Exemplar[float64]{
			Time: x.Time, Value: x.Duration.Seconds(), TraceID: slices.Clone(x.TraceID[:]), SpanID: slices.Clone(x.SpanID[:]),
		}
	}
	return data
}

func set(of []telemetry.Attribute) attribute.Set { return attribute.NewSet(keyValues(of)...) }

func keyValues(of []telemetry.Attribute) []attribute.KeyValue {
	all := make([]attribute.KeyValue, len(of))
	for i, a := range of {
		all[i] = attribute.String(a.Key, a.Value)
	}
	return all
}
