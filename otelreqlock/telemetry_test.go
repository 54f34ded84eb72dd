package otelreqlock

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// A telemetryFixture is a client whose metrics and spans a test reads.
type telemetryFixture struct {
	*Telemetry
	locks  *core.Client
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
	asleep atomic.Int32 // callers that wait for a lock
}

func newTelemetry(t *testing.T, o Options) *telemetryFixture {
	t.Helper()
	fx := &telemetryFixture{spans: tracetest.NewSpanRecorder()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(fx.spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	fx.tracer = provider.Tracer("test")
	o.TracerProvider = provider
	fx.Telemetry = New(o)
	fx.reader = metric.NewManualReader(metric.WithProducer(fx))
	_ = metric.NewMeterProvider(metric.WithReader(fx.reader))
	fx.locks = locktest.NewLocks(t, func(opts *core.Options) {
		opts.Observer = fx.Observer(core.Observer{Waiting: func(context.Context, core.Event) { fx.asleep.Add(1) }})
	})
	fx.Watch("", fx.locks)
	return fx
}

// metrics returns the metrics by name, as a reader exports them.
func (fx *telemetryFixture) metrics(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := fx.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]metricdata.Metrics)
	for _, s := range all.ScopeMetrics {
		if s.Scope.Name != scope {
			t.Errorf("scope %q", s.Scope.Name)
		}
		for _, m := range s.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// count returns the value of a counter or a gauge, or the count of a histogram.
func (fx *telemetryFixture) count(t *testing.T, name string, attributes ...attribute.KeyValue) int64 {
	t.Helper()
	want := attribute.NewSet(attributes...)
	switch data := fx.metrics(t)[name].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			if p.Attributes.Equals(&want) {
				return p.Value
			}
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			if p.Attributes.Equals(&want) {
				return int64(p.Count)
			}
		}
	}
	return -1
}

func (fx *telemetryFixture) wantCount(t *testing.T, want int64, name string, attributes ...attribute.KeyValue) {
	t.Helper()
	if got := fx.count(t, name, attributes...); got != want {
		t.Errorf("%s %v is %d, want %d", name, attributes, got, want)
	}
}

var (
	kind    = attribute.Key("reqlock.kind")
	outcome = attribute.Key("reqlock.outcome")
	failure = attribute.Key("error.type")
)

func mustAcquire(t *testing.T, ctx context.Context, lock *core.Lock) *core.Lease {
	t.Helper()
	lease, err := lock.Acquire(ctx, core.AcquireOptions{WaitTime: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	fx := newTelemetry(t, Options{})
	ctx := t.Context()
	lease := mustAcquire(t, ctx, fx.locks.FencedLock("a"))
	if _, err := fx.locks.FencedLock("a").Acquire(ctx, core.AcquireOptions{}); !errors.Is(err, core.ErrNotAcquired) {
		t.Fatal(err)
	}
	fx.wantCount(t, 1, "reqlock.locks.held", kind.String("fenced"))
	fx.wantCount(t, 0, "reqlock.waiters", kind.String("fenced"))
	fx.wantCount(t, 1, "reqlock.acquire.duration", kind.String("fenced"), outcome.String("acquired"))
	fx.wantCount(t, 1, "reqlock.acquire.duration", kind.String("fenced"), outcome.String("refused"))
	fx.wantCount(t, 0, "reqlock.hold.duration", kind.String("fenced"), outcome.String("released"))
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	fx.wantCount(t, 1, "reqlock.hold.duration", kind.String("fenced"), outcome.String("released"))
	fx.wantCount(t, 0, "reqlock.locks.held", kind.String("fenced"))

	lease = mustAcquire(t, ctx, fx.locks.FencedLock("a"))
	if freed, err := fx.locks.FencedLock("a").ForceUnlock(ctx); !freed || err != nil {
		t.Fatal(freed, err)
	}
	<-lease.Done()
	await(t, "the loss", func() bool {
		return fx.count(t, "reqlock.hold.duration", kind.String("fenced"), outcome.String("lost"), failure.String("lock_lost")) == 1
	})
	fx.wantCount(t, 1, "reqlock.locks.lost")

	oldest, ok := fx.metrics(t)["reqlock.locks.oldest"].Data.(metricdata.Gauge[float64])
	if !ok || len(oldest.DataPoints) != len(core.Kinds()) {
		t.Errorf("reqlock.locks.oldest: %v", oldest)
	}
	durations := fx.metrics(t)["reqlock.acquire.duration"]
	for _, p := range durations.Data.(metricdata.Histogram[float64]).DataPoints {
		if (p.Sum > 0) != (p.Count > 0) || len(p.BucketCounts) != len(p.Bounds)+1 || len(p.Exemplars) > 0 {
			t.Errorf("%+v", p)
		}
	}
	if durations.Unit != "s" {
		t.Errorf("unit %q", durations.Unit)
	}
}

// A client with a name has it in its metrics.
func TestMetrics_OfClients(t *testing.T) {
	t.Parallel()
	fx := newTelemetry(t, Options{})
	leaders := locktest.NewLocks(t)
	fx.Watch("leaders", leaders)
	lease := mustAcquire(t, t.Context(), leaders.Lock("a"))
	fx.wantCount(t, 1, "reqlock.locks.held", kind.String("lock"), attribute.String("reqlock.client", "leaders"))
	fx.wantCount(t, 0, "reqlock.locks.held", kind.String("lock"))
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	fx := newTelemetry(t, Options{})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httplock.New(fx.locks, httplock.Config{Key: keyfuncs.PathValue("id"), Observe: fx.Observe})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/1", nil)) // while this one has the lock
		})))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/1", nil))
	route := attribute.String("http.route", "/orders/{id}")
	fx.wantCount(t, 1, "reqlock.requests", attribute.String("reqlock.problem", "none"), route)
	fx.wantCount(t, 1, "reqlock.requests", attribute.String("reqlock.problem", "locked"), route)
}

// A caller that waits has a span that links to the span of the holder, and its durations are
// exemplars of its trace.
func TestSpans(t *testing.T) {
	t.Parallel()
	fx := newTelemetry(t, Options{Name: func(lock string) string { return "name of " + lock }})
	holderCtx, holder := fx.tracer.Start(t.Context(), "holder")
	lease := mustAcquire(t, holderCtx, fx.locks.Lock("a"))
	waiterCtx, waiter := fx.tracer.Start(t.Context(), "waiter")
	granted := make(chan *core.Lease, 1)
	go func() {
		lease, err := fx.locks.Lock("a").Acquire(waiterCtx, core.AcquireOptions{WaitTime: 10 * time.Second})
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	}()
	await(t, "the waiter to sleep", func() bool { return fx.asleep.Load() == 1 })
	time.Sleep(10 * time.Millisecond) // so that it has waited for a time that the span shows
	if err := lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := (<-granted).Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	holder.End()
	waiter.End()

	wait := fx.span(t, "lock acquire", waiter)
	if d := wait.EndTime().Sub(wait.StartTime()); d < 10*time.Millisecond {
		t.Errorf("the span lasts %s", d)
	}
	if links := wait.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != holder.SpanContext().SpanID() {
		t.Errorf("links %v, want one to the holder", links)
	}
	want := []attribute.KeyValue{kind.String("lock"), outcome.String("acquired"), attribute.String("reqlock.lock", "name of a")}
	if !slices.Equal(wait.Attributes(), want) {
		t.Errorf("attributes %v, want %v", wait.Attributes(), want)
	}
	if own := fx.span(t, "lock acquire", holder); len(own.Links()) != 0 {
		t.Errorf("the holder links to %v", own.Links())
	}
	if hold := fx.span(t, "lock hold", holder); hold.EndTime().Sub(hold.StartTime()) < 10*time.Millisecond || hold.Status().Code != codes.Unset {
		t.Errorf("the hold from %s to %s: %v", hold.StartTime(), hold.EndTime(), hold.Status())
	}
	fx.span(t, "lock hold", waiter)

	var traces []trace.TraceID
	for _, p := range fx.metrics(t)["reqlock.acquire.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		for _, x := range p.Exemplars {
			traces = append(traces, trace.TraceID(x.TraceID))
		}
	}
	if !slices.Contains(traces, waiter.SpanContext().TraceID()) {
		t.Errorf("exemplars of %v, want one of %s", traces, waiter.SpanContext().TraceID())
	}
}

// A loss is an event and an error of the hold's span. A refusal is no error.
func TestSpans_LossAndRefusal(t *testing.T) {
	t.Parallel()
	fx := newTelemetry(t, Options{})
	ctx, caller := fx.tracer.Start(t.Context(), "caller")
	defer caller.End()
	lease := mustAcquire(t, ctx, fx.locks.Lock("a"))
	otherCtx, other := fx.tracer.Start(t.Context(), "other")
	defer other.End()
	if _, err := fx.locks.Lock("a").Acquire(otherCtx, core.AcquireOptions{}); !errors.Is(err, core.ErrNotAcquired) {
		t.Fatal(err)
	}
	if span := fx.span(t, "lock acquire", other); span.Status().Code != codes.Unset || !slices.Contains(span.Attributes(), outcome.String("refused")) {
		t.Errorf("the refusal: %v %v", span.Status(), span.Attributes())
	}
	if freed, err := fx.locks.Lock("a").ForceUnlock(ctx); !freed || err != nil {
		t.Fatal(freed, err)
	}
	<-lease.Done()
	hold := fx.span(t, "lock hold", caller)
	if hold.Status().Code != codes.Error || len(hold.Events()) != 1 || hold.Events()[0].Name != "lock lost" {
		t.Errorf("the lost hold: %v %v", hold.Status(), hold.Events())
	}
	if err := lease.Release(ctx); !errors.Is(err, core.ErrLockLost) {
		t.Error(err)
	}
}

// Without a sampled span in the context there are metrics, but no spans.
func TestSpans_Unsampled(t *testing.T) {
	t.Parallel()
	fx := newTelemetry(t, Options{})
	unsampled := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	for _, ctx := range []context.Context{t.Context(), unsampled} {
		if err := mustAcquire(t, ctx, fx.locks.Lock("a")).Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if spans := fx.spans.Ended(); len(spans) != 0 {
		t.Errorf("there are %d spans", len(spans))
	}
	fx.wantCount(t, 2, "reqlock.hold.duration", kind.String("lock"), outcome.String("released"))
}

// A failed renewal is an event of the caller's span.
func TestSpans_Notes(t *testing.T) {
	t.Parallel()
	fx := newTelemetry(t, Options{})
	ctx, span := fx.tracer.Start(t.Context(), "caller")
	o := fx.Observer(core.Observer{})
	o.RenewFailed(ctx, core.Event{Kind: "lock", Err: errors.New("timeout")})
	o.Retrying(ctx, core.Event{Kind: "lock", Err: errors.New("refused")})
	o.RenewFailed(context.Background(), core.Event{Kind: "lock", Err: errors.New("timeout")})
	span.End()
	var names []string
	for _, e := range fx.spans.Ended()[0].Events() {
		names = append(names, e.Name)
		if want := []attribute.KeyValue{kind.String("lock"), failure.String("redis")}; !slices.Equal(e.Attributes, want) {
			t.Errorf("%s: %v", e.Name, e.Attributes)
		}
	}
	if !slices.Equal(names, []string{"lock renewal failed", "lock acquire failed"}) {
		t.Errorf("events %q", names)
	}
}

// span waits for the only span of that name whose parent is the given one.
func (fx *telemetryFixture) span(t *testing.T, name string, parent trace.Span) (found sdktrace.ReadOnlySpan) {
	t.Helper()
	await(t, "a span "+name, func() bool {
		found = nil
		for _, s := range fx.spans.Ended() {
			if s.Name() == name && s.Parent().SpanID() == parent.SpanContext().SpanID() {
				if found != nil {
					t.Fatalf("two spans %s", name)
				}
				found = s
			}
		}
		return found != nil
	})
	return found
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// docs/guides/metrics.md has every span, event and attribute.
func TestReference(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/guides/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{acquireSpan, holdSpan} {
		row := "| `" + name + "` | `reqlock.kind`, `reqlock.outcome`, `error.type`, `reqlock.lock` |"
		if !strings.Contains(string(text), row) {
			t.Errorf("there is no row %s", row)
		}
	}
	for _, event := range []string{lostEvent, retryEvent, renewFailedEvent} {
		if !strings.Contains(string(text), "`"+event+"`") {
			t.Errorf("there is no event %s", event)
		}
	}
}
