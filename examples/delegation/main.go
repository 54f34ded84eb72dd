// Delegation is a shop of three services that lock the same order: orders calls billing, and
// billing calls the ledger. With delegation, a call enters the lock of its caller as a guest.
//
//	go run ./examples/delegation         shows a payment without and with it, then serves until Ctrl-C
//	go run ./examples/delegation -once   exits after the demonstration
//
// It needs only Go: Redis runs inside the process unless REDIS_URL is set.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/embedded"
	"github.com/reqlock/reqlock/examples/internal/demo"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
	httplock "github.com/reqlock/reqlock/middleware/nethttp"
)

const (
	workTime = 150 * time.Millisecond // Each service works for this long.
	waitTime = 500 * time.Millisecond // A call waits this long for the order, and then gets 409.
)

func main() {
	demo.Main(demo.Program{Name: "delegation", What: "A shop of three services", Serve: serve, Demonstrate: demonstrate, Invite: invitation})
}

// A shop is the running services, each on its own port.
type shop struct {
	keys   *delegation.Keys
	redis  *embedded.Server
	client *http.Client // calls without tokens
	failed chan error
	stops  []func(ctx context.Context) error
}

// serve starts the services from the last one that is called to the first.
func serve(listener net.Listener, redis *embedded.Server) (*demo.Server, error) {
	secret := make([]byte, 32) // In production, read it from where the services keep their secrets.
	_, _ = rand.Read(secret)
	keys, err := delegation.NewKeys(secret)
	if err != nil {
		return nil, err
	}
	s := &shop{keys: keys, redis: redis, client: &http.Client{Transport: &http.Transport{}}, failed: make(chan error, 3)}
	if err := s.start(listener); err != nil {
		return nil, errors.Join(err, s.stop(context.Background()))
	}
	return &demo.Server{Failed: s.failed, Stop: s.stop}, nil
}

func (s *shop) start(orders net.Listener) error {
	order := keyfuncs.Prefix("order:", keyfuncs.PathValue("id"))
	guests := httplock.Config{Key: order, WaitTime: waitTime, Delegates: guard.DelegatesTogether}
	ledger, err := s.add("ledger", nil, func(locks *core.Client, mux *http.ServeMux) {
		mux.Handle("POST /entries/{id}", httplock.New(locks, guests)(step{done: "booked"}))
	})
	if err != nil {
		return err
	}
	billing, err := s.add("billing", nil, func(locks *core.Client, mux *http.ServeMux) {
		mux.Handle("POST /bills/{id}", httplock.New(locks, guests)(step{"billed", s.delegating(ledger, "ledger"), ledger, "/entries/"}))
	})
	if err != nil {
		return err
	}
	_, err = s.add("orders", orders, func(locks *core.Client, mux *http.ServeMux) {
		lock := httplock.New(locks, httplock.Config{Key: order, WaitTime: 4 * waitTime})
		mux.Handle("POST /orders/{id}/pay", lock(step{"paid", s.delegating(billing, "billing"), billing, "/bills/"}))
		mux.Handle("POST /alone/{id}/pay", lock(step{"paid", s.client, billing, "/bills/"}))
	})
	return err
}

// delegating returns a client whose calls to a host carry tokens for the service that runs there.
func (s *shop) delegating(host, audience string) *http.Client {
	return &http.Client{Transport: httplock.Transport(s.client.Transport, delegation.Config{Hosts: map[string]string{host: audience}})}
}

// add starts a service with its own lock client, as its own process would have, and returns where it
// serves. Without a listener, it takes a free port.
func (s *shop) add(name string, listener net.Listener, routes func(*core.Client, *http.ServeMux)) (host string, err error) {
	if listener == nil {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
	}
	locks, err := core.New(s.redis.Client(), core.Options{Delegation: delegation.Service{Keys: s.keys, Name: name}})
	if err != nil {
		return "", errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	routes(locks, mux)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { s.failed <- server.Serve(listener) }()
	s.stops = append(s.stops, func(ctx context.Context) error { return demo.Shutdown(ctx, server, locks) })
	return listener.Addr().String(), nil
}

// stop stops the services, first the one that calls the others.
func (s *shop) stop(ctx context.Context) (err error) {
	for _, stop := range slices.Backward(s.stops) {
		err = errors.Join(err, stop(ctx))
	}
	s.client.CloseIdleConnections()
	return err
}
