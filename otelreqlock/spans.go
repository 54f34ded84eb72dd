package otelreqlock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/telemetry"
)

// The names of spans and of their events.
const (
	acquireSpan      = "lock acquire"
	holdSpan         = "lock hold"
	lostEvent        = "lock lost"           // The event is in the span of a hold.
	retryEvent       = "lock acquire failed" // The event is in the caller's span.
	renewFailedEvent = "lock renewal failed" // The event is in the caller's span.
)

// trace makes the span of what has just ended, so nothing is kept while it lasts. Without a sampled
// span in ctx it makes none.
func (t *Telemetry) trace(
	ctx context.Context, what telemetry.Metric, e core.Event, took time.Duration, end telemetry.End,
) *telemetry.Exemplar {
	caller := trace.SpanContextFromContext(ctx)
	if !caller.IsSampled() {
		return nil
	}
	name := acquireSpan
	if what == telemetry.HoldDuration {
		name = holdSpan
	}
	now := time.Now()
	attributes := keyValues(end.Attributes())
	if t.name != nil {
		if lock := t.name(e.Name); lock != "" {
			attributes = append(attributes, attribute.String(telemetry.Lock, lock))
		}
	}
	_, span := t.tracer.Start(ctx, name,
		trace.WithTimestamp(now.Add(-took)), trace.WithAttributes(attributes...), trace.WithLinks(links(e)...))
	if end.Outcome == telemetry.Lost {
		span.AddEvent(lostEvent, trace.WithTimestamp(now))
	}
	if end.ErrorType != "" { // waiting in vain is no error
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(now))
	return &telemetry.Exemplar{TraceID: caller.TraceID(), SpanID: caller.SpanID(), Duration: took, Time: now}
}

// links returns a link to the span of the holder that a caller waited for, if this process knows
// it.
func links(e core.Event) []trace.Link {
	if e.HolderContext == nil {
		return nil
	}
	holder := trace.SpanContextFromContext(e.HolderContext)
	if !holder.IsValid() {
		return nil
	}
	return []trace.Link{{SpanContext: holder}}
}

// note adds an event to the caller's span, if that has not ended.
func note(name string) func(context.Context, core.Event) {
	return func(ctx context.Context, e core.Event) {
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			span.AddEvent(name, trace.WithAttributes(
				attribute.String(telemetry.Kind, e.Kind), attribute.String(telemetry.ErrorType, telemetry.ErrorTypeOf(e.Err))))
		}
	}
}
