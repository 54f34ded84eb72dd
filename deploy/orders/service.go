package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/inspect"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

func newService(rdb *redis.Client, m *metrics, client string) (*service, error) {
	s := new(service)
	var errs [2]error
	s.locks, errs[0] = core.New(rdb, core.Options{ClientID: client, Observer: m.Observer(core.Observer{}), Annotate: annotate})
	s.leaders, errs[1] = core.New(rdb, core.Options{ClientID: client})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	// The alerts for stuck locks and waiters leave the leader's client out by its name.
	m.Watch("", s.locks)
	m.Watch("leaders", s.leaders)
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", httplock.New(s.locks, httplock.Config{
		Key:      keyfuncs.Prefix("order:", keyfuncs.PathValue("id")),
		WaitTime: 2 * time.Second,
		MaxHold:  10 * time.Minute,
		Observe:  m.Observe,
	})(http.HandlerFunc(work)))
	mux.Handle("POST /tickets/{id}", httplock.New(s.locks, httplock.Config{
		Key:      keyfuncs.Prefix("ticket:", keyfuncs.PathValue("id")),
		Mode:     guard.ModeFair,
		WaitTime: 10 * time.Second,
		Observe:  m.Observe,
	})(http.HandlerFunc(work)))
	mux.Handle("POST /payments", httplock.Idempotent(s.locks, idempotency.Config{
		Scope:   idempotency.ScopeGlobal,
		Observe: m.ObserveIdempotent,
	})(http.HandlerFunc(work)))
	mux.Handle("GET /debug/locks/", inspect.Handler(s.locks, inspect.Options{})) // put your authentication around it
	mux.Handle("GET /metrics", m.handler)
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", s.ready)
	s.handler = identified(mux)
	return s, nil
}

type requestID struct{}

// identified puts the header X-Request-Id into the request's context, for annotate.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestID{}, r.Header.Get("X-Request-Id"))))
	})
}

// annotate makes the page show which request holds a lock.
func annotate(ctx context.Context) core.Annotation {
	id, _ := ctx.Value(requestID{}).(string)
	return core.Annotation{RequestID: id}
}

// work works for a second, or for ?take, unless the lock is lost.
func work(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(cmp.Or(r.URL.Query().Get("take"), "1s"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(d):
		fmt.Fprintln(w, "done")
	case <-r.Context().Done():
		http.Error(w, "the lock was lost, or the client left", http.StatusServiceUnavailable)
	}
}

// ready is for readiness probes. A liveness probe must not ask Redis: a restart does not fix it.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.locks.Ping(r.Context()); err != nil {
		slog.Error("orders: not ready", "error", err)
		http.Error(w, "locks do not work", http.StatusServiceUnavailable)
	}
}
