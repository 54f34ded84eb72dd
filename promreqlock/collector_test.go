package promreqlock

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

func TestCollector(t *testing.T) {
	t.Parallel()
	c := New()
	registry := prometheus.NewPedanticRegistry() // checks that points match their descriptions
	registry.MustRegister(c)
	locks := locktest.NewLocks(t, func(o *core.Options) { o.Observer = c.Observer(core.Observer{}) })
	c.Watch("", locks)
	c.Watch("again", locks)
	c.WatchPlugin("orders", calls{"trap": 2})

	ctx := t.Context()
	lease, err := locks.Lock("a").Acquire(ctx, core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Lock("a").Acquire(ctx, core.AcquireOptions{WaitTime: time.Millisecond}); !errors.Is(err, core.ErrNotAcquired) {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.Pattern = "POST /pay"
	c.Observe(r, guard.Outcome{Err: &guard.Error{Type: guard.ProblemLocked}})
	c.ObserveIdempotent(r, guard.Outcome{Err: idempotency.ErrReplayed})
	c.ObserveCoalesced(r, guard.Outcome{Err: coalesce.ErrShared})

	for series, want := range map[string]float64{
		`reqlock_locks_held{reqlock_kind="lock"}`:                                                                 1,
		`reqlock_locks_held{reqlock_client="again",reqlock_kind="lock"}`:                                          1,
		`reqlock_waiters{reqlock_kind="lock"}`:                                                                    0,
		`reqlock_acquire_duration_seconds{reqlock_kind="lock",reqlock_outcome="acquired"}`:                        1,
		`reqlock_acquire_duration_seconds{reqlock_kind="lock",reqlock_outcome="timeout"}`:                         1,
		`reqlock_hold_duration_seconds{reqlock_kind="lock",reqlock_outcome="released"}`:                           0,
		`reqlock_locks_lost_total{}`:                                                                              0,
		`reqlock_requests_total{http_route="/pay",reqlock_problem="locked"}`:                                      1,
		`reqlock_idempotency_outcomes_total{http_route="/pay",reqlock_outcome="replayed",reqlock_problem="none"}`: 1,
		`reqlock_coalesce_outcomes_total{http_route="/pay",reqlock_outcome="shared",reqlock_problem="none"}`:      1,
		`reqlock_plugin_calls_total{reqlock_outcome="trap",reqlock_plugin="orders"}`:                              2,
	} {
		if got, ok := values(t, registry)[series]; !ok || got != want {
			t.Errorf("%s is %v (%t), want %v", series, got, ok, want)
		}
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if n := values(t, registry)[`reqlock_hold_duration_seconds{reqlock_kind="lock",reqlock_outcome="released"}`]; n != 1 {
		t.Errorf("%v holds have ended", n)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// A client or a plugin takes the place of one with its name, so that a scrape does not fail, and its
// watch ends without touching the next one's.
func TestCollector_WatchAgain(t *testing.T) {
	t.Parallel()
	c := New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	first := c.Watch("", locktest.NewLocks(t))
	second := locktest.NewLocks(t)
	stop := c.Watch("", second)
	lease, err := second.Lock("a").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context())
	c.WatchPlugin("orders", calls{"trap": 2})
	stopPlugin := c.WatchPlugin("orders", calls{"trap": 3})
	first()
	const held, trapped = `reqlock_locks_held{reqlock_kind="lock"}`, `reqlock_plugin_calls_total{reqlock_outcome="trap",reqlock_plugin="orders"}`
	if got := values(t, registry); got[held] != 1 || got[trapped] != 3 {
		t.Errorf("%v locks are held, %v calls trapped", got[held], got[trapped])
	}
	stop()
	stopPlugin()
	stop()
	got := values(t, registry)
	_, watched := got[held]
	_, called := got[trapped]
	if watched || called {
		t.Errorf("after the end: %v", got)
	}
}

// The buckets of a histogram are cumulative.
func TestCollector_Buckets(t *testing.T) {
	t.Parallel()
	c := New()
	o := c.Observer(core.Observer{})
	for _, d := range []time.Duration{time.Microsecond, time.Second, time.Second, time.Hour} {
		o.Released(t.Context(), core.Event{Kind: "lock", Held: d})
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "reqlock_hold_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetHistogram().GetSampleCount() == 0 {
				continue
			}
			counts := make(map[float64]uint64)
			for _, b := range m.GetHistogram().GetBucket() {
				counts[b.GetUpperBound()] = b.GetCumulativeCount()
			}
			if counts[.0005] != 1 || counts[.5] != 1 || counts[1] != 3 || counts[300] != 3 || m.GetHistogram().GetSampleSum() < 3602 {
				t.Errorf("buckets %v", m)
			}
			return
		}
	}
	t.Error("there is no histogram")
}

type calls map[string]uint64

func (c calls) Calls() map[string]uint64 { return c }

// values returns the values of all series, or the counts of histograms, without empty labels.
func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
				}
			}
			all[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value(f.GetType(), m)
		}
	}
	return all
}

func value(of dto.MetricType, m *dto.Metric) float64 {
	switch of {
	case dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	case dto.MetricType_HISTOGRAM:
		return float64(m.GetHistogram().GetSampleCount())
	}
	return m.GetGauge().GetValue()
}
