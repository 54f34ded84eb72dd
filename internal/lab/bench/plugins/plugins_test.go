package plugins

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/http-wasm/http-wasm-host-go/handler"
	httpwasm "github.com/http-wasm/http-wasm-host-go/handler/nethttp"
	"github.com/tetratelabs/wazero"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/wasm"
)

const timeout = 50 * time.Millisecond

// A host finds the key of a request.
type host func(r *http.Request) string

var hosts = []struct {
	name string
	open func(tb testing.TB) host
}{
	{"native Go", func(testing.TB) host { return native }},
	{"reqlock, ABI version 2, deadline", func(tb testing.TB) host { return reqlock(tb, read(tb, "testdata/v2.wasm"), wasm.Config{}) }},
	{"reqlock, ABI version 1, deadline", func(tb testing.TB) host { return reqlock(tb, read(tb, "testdata/v1.wasm"), wasm.Config{}) }},
	{"reqlock, http-wasm guest, deadline", func(tb testing.TB) host { return reqlock(tb, read(tb, "testdata/httpwasm.wasm"), wasm.Config{}) }},
	{"reqlock, Go guest, deadline", func(tb testing.TB) host { return reqlock(tb, goGuest(tb), wasm.Config{}) }},
	{"reqlock, ABI version 2, deadline, isolated", func(tb testing.TB) host { return reqlock(tb, read(tb, "testdata/v2.wasm"), wasm.Config{Isolate: true}) }},
	{"http-wasm-host-go", func(tb testing.TB) host { return httpWasm(tb, false) }},
	{"http-wasm-host-go, deadline", func(tb testing.TB) host { return httpWasm(tb, true) }},
	{"Extism", func(tb testing.TB) host { return extismHost(tb, 0) }},
	{"Extism, deadline", func(tb testing.TB) host { return extismHost(tb, timeout) }},
}

func native(r *http.Request) string { return r.Header.Get("X-Tenant") }

func reqlock(tb testing.TB, code []byte, cfg wasm.Config) host {
	cfg.Timeout, cfg.InitTimeout = time.Second, time.Minute // the machine may be busy
	cfg.Logger = slog.New(slog.DiscardHandler)
	p, err := wasm.New(context.Background(), code, cfg)
	check(tb, err)
	tb.Cleanup(func() { check(tb, p.Close(context.Background())) })
	return func(r *http.Request) string {
		var policy guard.Policy
		check(tb, p.Policy(r, &policy))
		return policy.Keys[0]
	}
}

// goGuest builds a guest in Go.
func goGuest(tb testing.TB) []byte {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "tenant.wasm")
	build := exec.Command("go", "build", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, "./testdata/tenant")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return read(tb, file)
}

// httpWasm has the guest set the key as a header, which the next handler reads.
func httpWasm(tb testing.TB, deadline bool) host {
	ctx := context.Background()
	config := wazero.NewRuntimeConfig().WithCloseOnContextDone(deadline)
	m, err := httpwasm.NewMiddleware(ctx, read(tb, "testdata/httpwasm.wasm"), handler.Runtime(func(ctx context.Context) (wazero.Runtime, error) {
		return wazero.NewRuntimeWithConfig(ctx, config), nil
	}))
	check(tb, err)
	tb.Cleanup(func() { check(tb, m.Close(ctx)) })
	var key string
	h := m.NewHandler(ctx, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { key = r.Header.Get("X-Lock-Key") }))
	w := httptest.NewRecorder()
	return func(r *http.Request) string {
		if deadline {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
		return key
	}
}

func extismHost(tb testing.TB, deadline time.Duration) host {
	ctx := context.Background()
	p, err := extism.NewPlugin(ctx, extism.Manifest{
		Wasm:    []extism.Wasm{extism.WasmData{Data: read(tb, "testdata/extism.wasm")}},
		Timeout: uint64((20 * deadline).Milliseconds()), // the machine may be busy
	}, extism.PluginConfig{}, nil)
	check(tb, err)
	tb.Cleanup(func() { check(tb, p.Close(ctx)) })
	return func(r *http.Request) string {
		_, key, err := p.Call("decide", []byte(r.Header.Get("X-Tenant")))
		check(tb, err)
		return string(key)
	}
}

func read(tb testing.TB, file string) []byte {
	tb.Helper()
	code, err := os.ReadFile(filepath.FromSlash(file))
	check(tb, err)
	return code
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/orders/42?x=1", nil)
	r.Header.Set("X-Tenant", "acme")
	return r
}

// All hosts find the same key.
func TestHosts(t *testing.T) {
	for _, h := range hosts {
		if key := h.open(t)(request()); key != "acme" {
			t.Errorf("%s: key %q", h.name, key)
		}
	}
}

func BenchmarkHosts(b *testing.B) {
	for _, h := range hosts {
		b.Run(h.name, func(b *testing.B) {
			find, r := h.open(b), request()
			b.ReportAllocs()
			var calls int64
			spent := cpu(b)
			for b.Loop() {
				find(r)
				calls++
			}
			b.ReportMetric(float64(cpu(b)-spent)/float64(calls), "cpu-ns/op")
		})
	}
}

// cpu returns the processor time of the process so far.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	check(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
