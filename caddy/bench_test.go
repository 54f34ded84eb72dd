package caddylock_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

// callers is how many requests BenchmarkCaddy sends at the same time.
const callers = 16

// BenchmarkCaddy compares Caddy with and without locks, and Caddy with a server in Go that has the
// middleware: callers at the same time, each request with its own key, and Redis on the same
// machine. ns/op is the time of all callers together, p99-ms that of one request.
func BenchmarkCaddy(b *testing.B) {
	server := redistest.Start(b)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "paid\n") }))
	defer backend.Close()
	proxy := "reverse_proxy " + strings.TrimPrefix(backend.URL, "http://")
	p := start(b, "{\n"+globals+"reqlock {\n redis redis://"+server.Addr()+"\n }\n}\nhttp://:{$PORT} {\n"+`
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
		}`+"\n}\n")
	library := guarded(b, server.Client(b))
	for _, bench := range []struct{ name, url string }{
		{"bare", p.url("/bare/")},
		{"reqlock", p.url("/locked/")},
		{"reqlock_idempotent", p.url("/once/")},
		{"Go server with httplock", library + "/locked/"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			transport := &http.Transport{MaxIdleConnsPerHost: callers}
			defer transport.CloseIdleConnections()
			measure(b, &http.Client{Transport: transport}, bench.url)
		})
	}
}

// guarded is a server in Go that does by itself what Caddy does in "reqlock", but for the proxy.
func guarded(b *testing.B, rdb *redis.Client) (url string) {
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /locked/{id}", httplock.New(locks, httplock.Config{Key: keyfuncs.PathValue("id")})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "paid\n") })))
	s := httptest.NewServer(mux)
	b.Cleanup(func() {
		s.Close()
		if err := locks.Close(b.Context()); err != nil && b.Context().Err() == nil {
			b.Error(err)
		}
	})
	return s.URL
}

// keys makes each request's key unique, over all runs.
var keys atomic.Int64

func measure(b *testing.B, client *http.Client, url string) {
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	done := make(chan error, callers)
	b.ResetTimer()
	for range callers {
		go func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(b.N) {
					done <- nil
					return
				}
				key := fmt.Sprint(keys.Add(1))
				began := time.Now()
				if a := send(b.Context(), client, http.MethodPost, url+key, "", "Idempotency-Key", key); a.status != http.StatusOK {
					done <- fmt.Errorf("%v", a)
					return
				}
				took[i] = time.Since(began)
			}
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(took[b.N*99/100])/1e6, "p99-ms")
}
