package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/redis/go-redis/v9"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/otelreqlock"
	"github.com/reqlock/reqlock/promreqlock"
)

// A scrape has the labels and type of each metric of a registry, by name.
type scrape map[string]struct {
	Type   string
	Labels []string
}

type plugin struct{}

func (plugin) Calls() map[string]uint64 { return map[string]uint64{"locked": 1, "trap": 1} }

// use fills every metric that t exports.
func use(t *testing.T, m interface {
	telemetry
	WatchPlugin(string, interface{ Calls() map[string]uint64 }) (stop func())
	ObserveIdempotent(*http.Request, guard.Outcome)
	ObserveCoalesced(*http.Request, guard.Outcome)
}) {
	t.Helper()
	locks := locktest.NewLocks(t, func(o *core.Options) { o.Observer = m.Observer(core.Observer{}) })
	m.Watch("named", locks)
	m.WatchPlugin("p", plugin{})
	lease, err := locks.Lock("a").Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	broken := newBroken(t, m)
	if _, err := broken.Lock("a").Acquire(t.Context(), core.AcquireOptions{}); err == nil {
		t.Fatal("locked without Redis")
	}
	m.Observer(core.Observer{}).Lost(t.Context(), core.Event{Kind: "lock", Err: core.ErrLockLost})
	r := httptest.NewRequest("POST", "/pay", nil)
	r.Pattern = "POST /pay"
	m.Observe(r, guard.Outcome{Ran: true})
	m.ObserveIdempotent(r, guard.Outcome{Ran: true})
	m.ObserveCoalesced(r, guard.Outcome{Ran: true})
}

// scraped returns the metrics of reqlock in a registry.
func scraped(t *testing.T, registry *prometheus.Registry) scrape {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(scrape)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "reqlock_") {
			continue
		}
		names := make(map[string]bool)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" && !strings.HasPrefix(l.GetName(), "otel_scope_") {
					names[l.GetName()] = true
				}
			}
		}
		of := found[f.GetName()]
		of.Type, of.Labels = f.GetType().String(), slices.Sorted(maps.Keys(names))
		found[f.GetName()] = of
	}
	return found
}

func byOpenTelemetry(t *testing.T) scrape {
	registry := prometheus.NewRegistry()
	o := otelreqlock.New(otelreqlock.Options{})
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithProducer(o))
	if err != nil {
		t.Fatal(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	use(t, o)
	return scraped(t, registry)
}

func byPrometheus(t *testing.T) scrape {
	registry := prometheus.NewPedanticRegistry()
	c := promreqlock.New()
	registry.MustRegister(c)
	use(t, c)
	return scraped(t, registry)
}

// One dashboard serves both: names, types and labels are the same.
func TestBothExportTheSame(t *testing.T) {
	t.Parallel()
	otel, prom := byOpenTelemetry(t), byPrometheus(t)
	for name := range maps.Keys(merged(otel, prom)) {
		a, b := otel[name], prom[name]
		if a.Type != b.Type || !slices.Equal(a.Labels, b.Labels) {
			t.Errorf("%s: OpenTelemetry's exporter has %v, promreqlock %v", name, a, b)
		}
	}
	if len(prom) != 20 {
		t.Errorf("%d metrics", len(prom))
	}
}

func merged(a, b scrape) scrape {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// docs/guides/metrics.md describes exactly the metrics that a registry has, with their types and
// labels.
func TestReference(t *testing.T) {
	t.Parallel()
	text := read(t, "../docs/guides/metrics.md")
	described := make(scrape)
	for _, row := range regexp.MustCompile("(?m)^\\| `(reqlock\\.[a-z.]+)` \\| `(reqlock_[a-z_]+)` \\| ([a-z]+) \\|[^|]*\\| ([^|]*) \\|").FindAllStringSubmatch(text, -1) {
		of := described[row[2]]
		of.Type = strings.ToUpper(row[3])
		for _, name := range regexp.MustCompile("`([a-z._]+)`").FindAllStringSubmatch(row[4], -1) {
			of.Labels = append(of.Labels, strings.ReplaceAll(name[1], ".", "_"))
		}
		slices.Sort(of.Labels)
		described[row[2]] = of
	}
	registry := byPrometheus(t)
	for name := range merged(registry, described) {
		want, ok := registry[name]
		got, has := described[name]
		if !ok || !has || got.Type != want.Type || !slices.Equal(got.Labels, want.Labels) {
			t.Errorf("%s: docs/guides/metrics.md has %v, the registry %v", name, got, want)
		}
	}
}

// Alerts and dashboards query only metrics and labels that exist.
func TestQueries(t *testing.T) {
	t.Parallel()
	registry := byPrometheus(t)
	for where, query := range queries(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			switch node := node.(type) {
			case *parser.VectorSelector:
				checkSelector(t, where, registry, node)
			case *parser.AggregateExpr:
				for _, label := range node.Grouping {
					if !known(registry, label) {
						t.Errorf("%s: groups by %s, which no metric has", where, label)
					}
				}
			}
			return nil
		})
	}
}

// target are the labels that Prometheus adds, and le that of histograms.
var target = []string{"job", "instance", "le"}

func known(registry scrape, label string) bool {
	for _, m := range registry {
		if slices.Contains(m.Labels, label) {
			return true
		}
	}
	return slices.Contains(target, label)
}

func checkSelector(t *testing.T, where string, registry scrape, s *parser.VectorSelector) {
	t.Helper()
	m, ok := registry[s.Name]
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, cut := strings.CutSuffix(s.Name, suffix); cut && !ok {
			m, ok = registry[base]
		}
	}
	if !ok {
		t.Errorf("%s: there is no metric %s", where, s.Name)
		return
	}
	for _, matcher := range s.LabelMatchers {
		if matcher.Name != model.MetricNameLabel && !slices.Contains(append(m.Labels, target...), matcher.Name) {
			t.Errorf("%s: %s has no label %s", where, s.Name, matcher.Name)
		}
	}
}

// queries returns all queries of alerts and dashboards.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			all["alert "+rule.Alert] = rule.Expr
		}
	}
	dashboards, err := os.ReadDir("grafana")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range dashboards {
		if !strings.HasSuffix(file.Name(), ".json") {
			continue
		}
		for title, query := range panels(t, "grafana/"+file.Name()) {
			all["panel "+title] = query
		}
	}
	if len(all) < 40 {
		t.Errorf("found only %d queries", len(all))
	}
	return all
}

func alerts(t *testing.T) *rulefmt.RuleGroups {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(read(t, "prometheus/alerts.yml")), false, model.UTF8Validation, parser.NewParser(parser.Options{}), nil)
	for _, err := range errs {
		t.Error(err)
	}
	return groups
}

// panels returns the queries of a dashboard. It checks that panels have titles, descriptions and
// places that do not overlap.
func panels(t *testing.T, path string) map[string]string {
	t.Helper()
	var dashboard struct {
		UID, Title  string
		Annotations struct {
			List []struct{ Name, Expr string }
		}
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Targets                  []struct{ RefID, Expr string }
			Links                    []struct{ URL string }
			FieldConfig              struct{ Defaults struct{ NoValue string } }
		}
	}
	if err := json.Unmarshal([]byte(read(t, path)), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || dashboard.Title == "" {
		t.Errorf("%s has no uid or title", path)
	}
	all := make(map[string]string)
	for _, a := range dashboard.Annotations.List {
		all["annotation "+a.Name] = grafana(a.Expr)
	}
	taken, ids := make(map[[2]int]string), make(map[int]bool)
	for _, p := range dashboard.Panels {
		if p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) || ids[p.ID] {
			t.Errorf("%s: panel %d %q lacks something", path, p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type == "stat" && p.FieldConfig.Defaults.NoValue != "no data" {
			t.Errorf("%s: %q shows %q where there is no data", path, p.Title, p.FieldConfig.Defaults.NoValue)
		}
		for _, alert := range regexp.MustCompile(`Reqlock\w+`).FindAllString(p.Description, -1) {
			if !slices.ContainsFunc(p.Links, func(l struct{ URL string }) bool {
				return strings.HasSuffix(l.URL, "/docs/guides/runbooks.md#"+strings.ToLower(alert))
			}) {
				t.Errorf("%s: %q has no link to the runbook of %s", path, p.Title, alert)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Errorf("%s: %q overlaps %q", path, p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			all[p.Title+" "+target.RefID] = grafana(target.Expr)
		}
	}
	return all
}

// grafana fills in the variables of Grafana.
func grafana(query string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__interval", "1m", "$__range", "1h", "$job", ".*", "$instance", ".*", "$kind", ".*").Replace(query)
}

// Each alert has a runbook with its name, and no runbook is left over.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	var want []string
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			want = append(want, rule.Alert)
			url := "https://github.com/reqlock/reqlock/blob/main/docs/guides/runbooks.md#" + strings.ToLower(rule.Alert)
			if rule.Annotations["runbook_url"] != url || rule.Annotations["summary"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("%s: labels %v, annotations %v", rule.Alert, rule.Labels, rule.Annotations)
			}
		}
	}
	var got []string
	for _, heading := range regexp.MustCompile(`(?m)^## (Reqlock\w+)$`).FindAllStringSubmatch(read(t, "../docs/guides/runbooks.md"), -1) {
		got = append(got, heading[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("runbooks for %q, want %q", got, want)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// newBroken returns a client without a Redis, which is observed and watched.
func newBroken(t *testing.T, m telemetry) *core.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	locks, err := core.New(rdb, core.Options{Observer: m.Observer(core.Observer{}), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(locks.Close(context.Background()), rdb.Close()); err != nil {
			t.Error(err)
		}
	})
	m.Watch("broken", locks)
	return locks
}
