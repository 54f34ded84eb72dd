package telemetry

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

// A Recorder has the values of all metrics. Its methods may be called from any goroutine.
type Recorder struct {
	// Trace, if set, traces the end of a call of Acquire or of a hold, and returns an exemplar of
	// it, or nil.
	Trace func(ctx context.Context, what Metric, e core.Event, took time.Duration, end End) *Exemplar

	acquires, holds                  series[End, Distribution]
	requests, idempotents, coalesced series[request, atomic.Uint64]

	mu      sync.Mutex
	watched []*source // one of each metric and name; copied to be changed
}

// A request is the attributes of a request's metric.
type request struct{ outcome, problem, route string }

// Observer returns an Observer that calls own and records durations.
func (r *Recorder) Observer(own core.Observer) core.Observer {
	return Then(own, core.Observer{Acquired: r.acquired, NotAcquired: r.acquired, Released: r.released, Lost: r.released})
}

func (r *Recorder) acquired(ctx context.Context, e core.Event) {
	end := AcquireEnd(ctx, e)
	r.acquires.of(end).Record(e.Waited, r.trace(ctx, AcquireDuration, e, e.Waited, end))
}

func (r *Recorder) released(ctx context.Context, e core.Event) {
	end := HoldEnd(e)
	r.holds.of(end).Record(e.Held, r.trace(ctx, HoldDuration, e, e.Held, end))
}

func (r *Recorder) trace(ctx context.Context, what Metric, e core.Event, took time.Duration, end End) *Exemplar {
	if r.Trace == nil {
		return nil
	}
	return r.Trace(ctx, what, e, took, end)
}

// Observe counts a request in a guard.
func (r *Recorder) Observe(req *http.Request, o guard.Outcome) {
	r.requests.of(request{problem: RequestProblem(o), route: RouteOf(req)}).Add(1)
}

// ObserveIdempotent counts a request with an idempotency key.
func (r *Recorder) ObserveIdempotent(req *http.Request, o guard.Outcome) {
	outcome, problem := Idempotency(o)
	r.idempotents.of(request{outcome, problem, RouteOf(req)}).Add(1)
}

// ObserveCoalesced counts a request in a coalesce.Guard.
func (r *Recorder) ObserveCoalesced(req *http.Request, o guard.Outcome) {
	outcome, problem := Coalesced(o)
	r.coalesced.of(request{outcome, problem, RouteOf(req)}).Add(1)
}

// A source is a client or a plugin whose numbers are read at each collection.
type source struct {
	// of is Client or Plugin.
	of   string
	name string
	read func(report)
}

// Watch adds the numbers of a client, in place of the one that has the name. name is the value of
// Client; "": without it. stop ends that. A collection under way may still read the client.
func (r *Recorder) Watch(name string, locks *core.Client) (stop func()) {
	return r.watch(&source{Client, name, func(out report) { readClient(locks, name, out) }})
}

// A PluginSource has the number of calls of a plugin by the name of their outcome, such as a
// *wasm.Plugin.
type PluginSource interface{ Calls() map[string]uint64 }

// WatchPlugin adds the calls of a plugin, in place of the one that has the name. stop ends that.
func (r *Recorder) WatchPlugin(name string, p PluginSource) (stop func()) {
	return r.watch(&source{Plugin, name, func(out report) {
		for outcome, n := range p.Calls() {
			out(PluginCalls, Point{Attributes: present(Plugin, name, Outcome, outcome), Value: float64(n)})
		}
	}})
}

// watch adds a source in place of one with the same series: two points of one series would fail
// the whole collection.
func (r *Recorder) watch(s *source) (stop func()) {
	r.change(func(old *source) bool { return old.of == s.of && old.name == s.name }, s)
	return func() { r.change(func(old *source) bool { return old == s }) }
}

// change removes sources and adds others.
func (r *Recorder) change(remove func(*source) bool, add ...*source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched = append(slices.DeleteFunc(slices.Clone(r.watched), remove), add...)
}

// A Point is the current value of one series of a metric.
type Point struct {
	Attributes []Attribute
	Value      float64
	// Durations belong to a Histogram, which has no Value.
	Durations *Snapshot
}

// An Attribute is an attribute of a metric with its value.
type Attribute struct{ Key, Value string }

type report = func(m Metric, p Point)

// Collect returns the current points of all metrics.
func (r *Recorder) Collect() map[Metric][]Point {
	points := make(map[Metric][]Point)
	out := func(m Metric, p Point) { points[m] = append(points[m], p) }
	collect(&r.acquires, AcquireDuration, Acquired, out)
	collect(&r.holds, HoldDuration, Released, out)
	for of, n := range r.requests.all() {
		out(Requests, Point{Attributes: of.attributes(), Value: float64(n.Load())})
	}
	for of, n := range r.idempotents.all() {
		out(IdempotencyOutcomes, Point{Attributes: of.attributes(), Value: float64(n.Load())})
	}
	for of, n := range r.coalesced.all() {
		out(CoalesceOutcomes, Point{Attributes: of.attributes(), Value: float64(n.Load())})
	}
	r.mu.Lock()
	watched := r.watched
	r.mu.Unlock()
	for _, s := range watched {
		s.read(out)
	}
	return points
}

// collect reports the durations of all ends. usual is the Outcome that each kind has a series of from
// the start.
func collect(durations *series[End, Distribution], m Metric, usual string, out report) {
	for _, kind := range kinds {
		durations.of(End{Kind: kind, Outcome: usual})
	}
	for end, of := range durations.all() {
		out(m, Point{Attributes: end.Attributes(), Durations: of.Snapshot()})
	}
}

func (r request) attributes() []Attribute {
	return present(Outcome, r.outcome, Problem, r.problem, Route, r.route)
}

// Attributes returns the attributes of an end.
func (e End) Attributes() []Attribute {
	return present(Kind, e.Kind, Outcome, e.Outcome, ErrorType, e.ErrorType)
}

// present returns the attributes of keys and values in turn, without those that are empty.
func present(pairs ...string) (set []Attribute) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			set = append(set, Attribute{pairs[i], pairs[i+1]})
		}
	}
	return set
}
