package coalesce

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

const (
	stampedeSize = 1000
	stampedeWork = 10 * time.Millisecond
)

// BenchmarkServe_Stampede sends a thousand requests for one report to three clients at once. A run
// takes 10 ms. It reports how many runs there were, when the last request was answered, and how long
// after the end of a run 99 of 100 of those who waited for it were: for a lock alone and with Coalesce.
func BenchmarkServe_Stampede(b *testing.B) {
	alone := func(locks *core.Client) (func(http.ResponseWriter, *http.Request, http.HandlerFunc), error) {
		g, err := guard.New(locks, guard.Config{Key: keyfuncs.Path(), WaitTime: time.Minute})
		return func(w http.ResponseWriter, r *http.Request, h http.HandlerFunc) { g.Serve(w, r, h) }, err
	}
	together := func(locks *core.Client) (func(http.ResponseWriter, *http.Request, http.HandlerFunc), error) {
		g, err := New(locks, Config{})
		return func(w http.ResponseWriter, r *http.Request, h http.HandlerFunc) {
			g.Serve(w, r, func(r *http.Request, rec *Recorder) { h(rec.Wrap(w), r) })
		}, err
	}
	var curves []curve
	for _, way := range []struct {
		name, colour string
		guard        func(*core.Client) (func(http.ResponseWriter, *http.Request, http.HandlerFunc), error)
	}{
		{"a lock alone", "#2a7ab0", alone},
		{"Coalesce", "#c8552d", together},
	} {
		b.Run(way.name, func(b *testing.B) {
			server := redistest.Start(b)
			var serve []func(http.ResponseWriter, *http.Request, http.HandlerFunc)
			for range 3 {
				s, err := way.guard(newLocks(b, server))
				if err != nil {
					b.Fatal(err)
				}
				serve = append(serve, s)
			}
			report := make([]byte, 1<<10)
			var runs, ended atomic.Int64
			handler := func(w http.ResponseWriter, _ *http.Request) {
				runs.Add(1)
				time.Sleep(stampedeWork)
				ended.Store(time.Now().UnixNano())
				_, _ = w.Write(report)
			}
			var last, late time.Duration
			answered := make([]time.Duration, stampedeSize)
			for i := range b.N {
				var requests sync.WaitGroup
				after := make([]time.Duration, stampedeSize)
				began := time.Now()
				for n := range stampedeSize {
					requests.Go(func() {
						w := httptest.NewRecorder()
						serve[n%3](w, httptest.NewRequest("GET", fmt.Sprint("/report/", i), nil), handler)
						answered[n] = time.Since(began)
						after[n] = time.Duration(time.Now().UnixNano() - ended.Load())
						if w.Code != 200 || w.Body.Len() != len(report) {
							b.Errorf("answer %d of %d bytes", w.Code, w.Body.Len())
						}
					})
				}
				requests.Wait()
				last += time.Since(began)
				slices.Sort(after)
				late += after[stampedeSize*99/100]
			}
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(b.N) }
			b.ReportMetric(float64(runs.Load())/float64(b.N), "runs")
			b.ReportMetric(ms(last), "ms/last")
			b.ReportMetric(ms(late), "ms/p99-after-the-run")
			b.ReportMetric(0, "ns/op")
			curves = append(curves, curve{way.name, way.colour, answered})
		})
	}
	if *plotFile != "" {
		plot(b, *plotFile, curves)
	}
}
