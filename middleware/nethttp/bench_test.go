package httplock

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// BenchmarkIdempotent compares idempotency with a guard: a POST with 200 bytes, answered with 1
// KiB, and Redis on the same machine. Each request of "guard" and "first run" has a new key; those
// of "replay" share one.
func BenchmarkIdempotent(b *testing.B) {
	answer := bytes.Repeat([]byte("x"), 1024)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	})
	for _, bench := range []struct {
		name string
		wrap func(*core.Client) http.Handler
		key  func(i int) string
	}{
		{"guard", func(locks *core.Client) http.Handler {
			return New(locks, Config{Key: keyfuncs.Header("Idempotency-Key")})(handler)
		}, strconv.Itoa},
		{"first run", idempotent(handler), strconv.Itoa},
		{"replay", idempotent(handler), func(int) string { return "same" }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			locks, err := core.New(redistest.Start(b).Client(b), core.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer locks.Close(context.Background())
			served := bench.wrap(locks)
			body := bytes.Repeat([]byte("y"), 200)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := httptest.NewRequest("POST", "/pay", bytes.NewReader(body))
				r.Header.Set("Idempotency-Key", bench.key(i))
				w := httptest.NewRecorder()
				if served.ServeHTTP(w, r); w.Code != http.StatusCreated || w.Body.Len() != len(answer) {
					b.Fatalf("answer %d %s", w.Code, w.Body)
				}
			}
		})
	}
}

func idempotent(handler http.Handler) func(*core.Client) http.Handler {
	return func(locks *core.Client) http.Handler {
		return Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal})(handler)
	}
}
