package deploy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
	"github.com/reqlock/reqlock/otelreqlock"
	"github.com/reqlock/reqlock/promreqlock"
)

// A variant is a way to measure locks, or none.
type variant struct {
	name    string
	locks   *core.Client
	ctx     context.Context // of S1's callers
	handler http.Handler

	rates, cpus []float64 // of each round
}

const sampledVariant = "OpenTelemetry, each call traced"

func variants(tb testing.TB) []*variant {
	srv := redistest.Start(tb)
	var all []*variant
	add := func(name string, ctx context.Context, t telemetry) {
		var opts core.Options
		var observe func(*http.Request, guard.Outcome)
		if t != nil {
			opts.Observer, observe = t.Observer(core.Observer{}), t.Observe
		}
		opts.Logger = slog.New(slog.DiscardHandler)
		locks, err := core.New(srv.Client(tb), opts)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := locks.Close(context.Background()); err != nil {
				tb.Error(err)
			}
		})
		if t != nil {
			t.Watch("", locks)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /orders/{id}", httplock.New(locks, httplock.Config{
			Key: keyfuncs.PathValue("id"), WaitTime: 5 * time.Second, Observe: observe,
		})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })))
		all = append(all, &variant{name: name, locks: locks, ctx: ctx, handler: mux})
	}
	background := context.Background()
	add("off", background, nil)
	add("OpenTelemetry", background, otelreqlock.New(otelreqlock.Options{}))
	add("Prometheus", background, promreqlock.New())
	provider := trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()))
	ctx, span := provider.Tracer("cost").Start(background, "caller")
	tb.Cleanup(func() { span.End() })
	add(sampledVariant, ctx, otelreqlock.New(otelreqlock.Options{TracerProvider: provider}))
	return all
}

// telemetry is what otelreqlock and promreqlock have in common.
type telemetry interface {
	Observer(own core.Observer) core.Observer
	Watch(name string, locks *core.Client) (stop func())
	Observe(r *http.Request, o guard.Outcome)
}

// BenchmarkCost compares the cost of metrics and traces. Each iteration is a round in which all
// variants take turns. It reports the median of the ratios to "off" of each round: throughput, and
// processor time per cycle or request.
func BenchmarkCost(b *testing.B) {
	const turn = 250 * time.Millisecond
	for _, goroutines := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("S1/%d goroutines", goroutines), func(b *testing.B) {
			rounds(b, variants(b), func(v *variant) (float64, time.Duration) { return cycles(b, v, goroutines, turn) })
		})
	}
	b.Run("S6", func(b *testing.B) {
		all := variants(b)
		rounds(b, all[:3], func(v *variant) (float64, time.Duration) { return requests(b, v, 2*turn) })
	})
}

// rounds measures the variants in turn and reports their ratios.
func rounds(b *testing.B, all []*variant, measure func(*variant) (n float64, cpu time.Duration)) {
	for _, v := range all {
		measure(v) // warm up
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		order := slices.Clone(all)
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, v := range order {
			began := time.Now()
			n, cpu := measure(v)
			v.rates = append(v.rates, n/time.Since(began).Seconds())
			v.cpus = append(v.cpus, cpu.Seconds()/n)
		}
	}
	off := all[0]
	for _, v := range all[1:] {
		b.ReportMetric(median(ratios(v.rates, off.rates)), unit(v.name)+"-rate")
		b.ReportMetric(median(ratios(v.cpus, off.cpus)), unit(v.name)+"-cpu")
	}
	b.ReportMetric(median(off.rates), "off/s")
	b.ReportMetric(1e6*median(off.cpus), "off-us-cpu")
}

func unit(name string) string { return strings.NewReplacer(" ", "-", ",", "").Replace(name) }

func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return r
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// cycles acquires and releases a lock of its own in each goroutine.
func cycles(tb testing.TB, v *variant, goroutines int, d time.Duration) (float64, time.Duration) {
	var n atomic.Int64
	var running sync.WaitGroup
	before, end := processorTime(tb), time.Now().Add(d)
	for i := range goroutines {
		running.Go(func() {
			lock := v.locks.Lock(fmt.Sprint("cost:", i))
			for time.Now().Before(end) {
				lease, err := lock.Acquire(v.ctx, core.AcquireOptions{})
				if err == nil {
					err = lease.Release(v.ctx)
				}
				if err != nil {
					tb.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	running.Wait()
	return float64(n.Load()), processorTime(tb) - before
}

// requests has another process request new orders over 64 connections.
func requests(tb testing.TB, v *variant, d time.Duration) (float64, time.Duration) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{Handler: v.handler}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(listener) }()
	defer func() { srv.Close(); <-served }()
	load := exec.Command(os.Args[0], "-test.run=^$")
	load.Env = append(os.Environ(), "REQLOCK_LOAD="+listener.Addr().String(), "REQLOCK_LOAD_FOR="+d.String())
	load.Stderr = os.Stderr
	before := processorTime(tb)
	answers, err := load.Output()
	if err != nil {
		tb.Fatal(err)
	}
	cpu := processorTime(tb) - before
	n, err := strconv.ParseFloat(strings.TrimSpace(string(answers)), 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n, cpu
}

// generate is the other process. It prints the number of answers.
func generate(addr string, d time.Duration) error {
	var n atomic.Int64
	var running sync.WaitGroup
	errs := make([]error, 64)
	end := time.Now().Add(d)
	for i := range errs {
		running.Go(func() {
			conn, err := net.Dial("tcp4", addr)
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			for order := 0; time.Now().Before(end); order++ {
				fmt.Fprintf(conn, "GET /orders/%d-%d HTTP/1.1\r\nHost: x\r\n\r\n", i, order)
				answer, err := http.ReadResponse(in, nil)
				if err != nil || answer.StatusCode != http.StatusOK {
					errs[i] = fmt.Errorf("answer %v: %w", answer, err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				n.Add(1)
			}
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	fmt.Println(n.Load())
	return nil
}

// processorTime returns what this process has used.
func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
