package otelreqlock

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/telemetry"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/reqlock/reqlock/otelreqlock"

// Options configures New. The zero value is a good default.
type Options struct {
	// TracerProvider makes the spans. nil: the global one, otel.GetTracerProvider.
	TracerProvider trace.TracerProvider
	// Name returns how spans name a lock, in the attribute reqlock.lock; "": not at all. It is
	// called with the name in full, which may contain what clients send, so return only what traces
	// may have. Metrics never have names. nil: spans have none.
	Name func(lock string) string
}

// Telemetry collects metrics of locks and makes their spans. It is a metric.Producer of
// go.opentelemetry.io/otel/sdk/metric. Its methods may be called from any goroutine. There is
// nothing to close.
type Telemetry struct {
	recorder telemetry.Recorder
	name     func(lock string) string
	tracer   trace.Tracer
	began    time.Time
}

// New returns a Telemetry. Pass it to the reader of your metrics.
func New(o Options) *Telemetry {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	t := &Telemetry{name: o.Name, tracer: o.TracerProvider.Tracer(scope), began: time.Now()}
	t.recorder.Trace = t.trace
	return t
}

// Observer returns an Observer for core.Options that calls own, which may be the zero Observer, and
// then records durations and makes spans.
func (t *Telemetry) Observer(own core.Observer) core.Observer {
	return telemetry.Then(t.recorder.Observer(own), core.Observer{
		Retrying:    note(retryEvent),
		RenewFailed: note(renewFailedEvent),
	})
}

// Watch adds a client to the metrics: its locks, waiters, losses, hand-overs and errors of Redis.
// They are read at each collection, which takes about a millisecond for 5,000 holds and waiters. A
// program with several clients gives each its own name, which becomes the attribute reqlock.client;
// "": no attribute. A client takes the place of the one that was watched with its name. stop ends
// the watch; call it when you close the client.
func (t *Telemetry) Watch(name string, locks *core.Client) (stop func()) {
	return t.recorder.Watch(name, locks)
}

// WatchPlugin adds the calls of a WebAssembly plugin, by outcome. calls is a *wasm.Plugin. name
// becomes the attribute reqlock.plugin. Names and stop are as in Watch.
func (t *Telemetry) WatchPlugin(name string, calls interface{ Calls() map[string]uint64 }) (stop func()) {
	return t.recorder.WatchPlugin(name, calls)
}

// Observe is for guard.Config.Observe. It counts requests.
func (t *Telemetry) Observe(r *http.Request, o guard.Outcome) { t.recorder.Observe(r, o) }

// ObserveIdempotent is for idempotency.Config.Observe. It counts requests.
func (t *Telemetry) ObserveIdempotent(r *http.Request, o guard.Outcome) {
	t.recorder.ObserveIdempotent(r, o)
}

// ObserveCoalesced is for coalesce.Config.Observe. It counts requests.
func (t *Telemetry) ObserveCoalesced(r *http.Request, o guard.Outcome) {
	t.recorder.ObserveCoalesced(r, o)
}
