package caddylock_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// callers is how many requests BenchmarkCaddy sends at the same time.
const callers = 16

// batch is how many requests one contender gets in a round.
const batch = 400

// A contender is a server of BenchmarkCaddy.
type contender struct {
	name, url string
	took      []time.Duration // of each request
	rates     []float64       // requests per second, of each round
}

// BenchmarkCaddy compares Caddy with and without locks, and with a server in Go that has the
// middleware and no proxy: callers at the same time, each request with its own key, and Redis on
// the same machine. The contenders take turns, so that a busy machine slows all of them. Each op is
// a round of 400 requests to each. The ratios are of the medians of requests per second.
func BenchmarkCaddy(b *testing.B) {
	server := redistest.Start(b)
	backend := httptest.NewServer(http.HandlerFunc(pay))
	defer backend.Close()
	proxy := "reverse_proxy " + strings.TrimPrefix(backend.URL, "http://")
	p := startCaddy(b, caddyfile("reqlock {\n redis redis://"+server.Addr()+"\n }", `
		handle /bare/* {
			`+proxy+`
		}
		handle /locked/* {
			reqlock {
				key {path.1}
			}
			`+proxy+`
		}
		handle /once/* {
			reqlock_idempotent {
				scope global
			}
			`+proxy+`
		}`))
	contenders := []*contender{
		{name: "bare", url: p.url("/bare/")},
		{name: "reqlock", url: p.url("/locked/")},
		{name: "idempotent", url: p.url("/once/")},
		{name: "library", url: library(b, server.Client(b)) + "/locked/"},
	}
	client := p.newClient(b, &http.Transport{MaxIdleConnsPerHost: callers})
	for _, c := range contenders {
		c.round(b, client) // opens connections
		c.took, c.rates = nil, nil
	}
	for b.Loop() {
		for _, c := range contenders {
			c.round(b, client)
		}
	}
	for _, c := range contenders {
		slices.Sort(c.took)
		b.ReportMetric(c.rate(), c.name+"-req/s")
		b.ReportMetric(float64(c.took[len(c.took)*99/100])/1e6, c.name+"-p99-ms")
		if c != contenders[0] {
			b.ReportMetric(c.rate()/contenders[0].rate(), c.name+"/bare")
		}
	}
}

func pay(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "paid\n") }

// library starts a server in Go that has the middleware.
func library(b *testing.B, rdb *redis.Client) (url string) {
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /locked/{id}", httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id")})(http.HandlerFunc(pay)))
	s := httptest.NewServer(mux)
	b.Cleanup(func() {
		s.Close()
		if err := locks.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return s.URL
}

// keys makes each request's key unique.
var keys atomic.Int64

// round sends a batch by all callers.
func (c *contender) round(b *testing.B, client *http.Client) {
	took := make([]time.Duration, batch)
	var next atomic.Int64
	var sending sync.WaitGroup
	began := time.Now()
	for range callers {
		sending.Go(func() {
			for i := next.Add(1) - 1; i < batch; i = next.Add(1) - 1 {
				key := fmt.Sprint(keys.Add(1))
				sent := time.Now()
				if a := send(b.Context(), client, http.MethodPost, c.url+key, "", "Idempotency-Key", key); a.status != http.StatusOK {
					b.Errorf("%s: %v", c.name, a)
					return
				}
				took[i] = time.Since(sent)
			}
		})
	}
	sending.Wait()
	c.rates = append(c.rates, batch/time.Since(began).Seconds())
	c.took = append(c.took, took...)
}

// rate returns the median of the rounds.
func (c *contender) rate() float64 {
	sorted := slices.Sorted(slices.Values(c.rates))
	return sorted[len(sorted)/2]
}
