// Orders is a service to deploy: several instances share locks in one Redis, and export metrics.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./orders -addr 127.0.0.1:8080
//
// POST /orders/{id}/pay takes the order's lock and works for a second, or for ?take=30s. POST
// /tickets/{id} takes a fair lock. POST /payments is idempotent by its Idempotency-Key. One
// instance at a time is the leader. GET /debug/locks/ shows what this instance holds, GET /metrics
// has the metrics, GET /healthz says that the process runs, and GET /readyz that locks work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redisurl"
)

// grace is how long a shutdown waits for handlers. Kubernetes must wait longer before it kills the
// process: see docs/guides/shutdown.md.
const grace = 30 * time.Second

func main() {
	addr := flag.String("addr", ":8080", "`host:port` to listen on; port 0 takes any free one")
	exporter := flag.String("metrics", "otel", "`otel` or prom: the way to the metrics, which are the same")
	client := flag.String("client", "", "`name` of this instance in Redis; empty: the host name and the process ID")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *exporter, *client); err != nil {
		slog.Error("orders", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, addr, exporter, client string) error {
	redisOptions, err := redisurl.Options(os.Getenv("REDIS_URL")) // whose error has no password
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	rdb := redis.NewClient(redisOptions)
	defer rdb.Close()
	m, err := newMetrics(exporter)
	if err != nil {
		return err
	}
	s, err := newService(rdb, m, client)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return errors.Join(err, s.close(ctx))
	}
	slog.Info("orders: listening", "url", "http://"+listener.Addr().String())
	return s.serve(ctx, listener)
}

// A service is an instance of this program.
type service struct {
	locks   *core.Client // of requests
	leaders *core.Client // of the leader, whose lock is held for days
	handler http.Handler
}

// serve serves until ctx ends, and then waits until handlers have returned and locks are released.
func (s *service) serve(ctx context.Context, listener net.Listener) error {
	led := make(chan error, 1)
	go func() { led <- core.RunWhileHeld(ctx, s.leaders.Lock("orders:leader"), lead) }()

	srv := &http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	select {
	case err := <-served:
		return errors.Join(err, s.close(ctx))
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	closed := make(chan error, 1)
	srv.RegisterOnShutdown(func() { closed <- s.locks.Close(patience) }) // waiters get 503 at once
	err := errors.Join(srv.Shutdown(patience), <-closed)
	<-led
	return errors.Join(err, s.leaders.Close(patience))
}

// close closes the clients of a service that does not serve.
func (s *service) close(ctx context.Context) error {
	return errors.Join(s.locks.Close(ctx), s.leaders.Close(ctx))
}

// lead is the work of the leader.
func lead(ctx context.Context) error {
	slog.Info("orders: this instance leads")
	<-ctx.Done()
	return nil
}
