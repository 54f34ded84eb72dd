package caddylock_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

const delegationSecret = "correct-horse-battery-staple-0042"

// secretService returns what a Go service has in core.Options.Delegation.
func secretService(t *testing.T, name string) delegation.Service {
	t.Helper()
	keys, err := delegation.NewKeys([]byte(delegationSecret))
	if err != nil {
		t.Fatal(err)
	}
	return delegation.Service{Keys: keys, Name: name}
}

func newLocks(t *testing.T, server *redistest.Server, name string) *core.Client {
	t.Helper()
	locks, err := core.New(server.Client(t), core.Options{Delegation: secretService(t, name), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// mustDelegate acquires a lock, and returns the lease with a token for a service.
func mustDelegate(t *testing.T, locks *core.Client, name, audience string) (lease *core.Lease, token string) {
	t.Helper()
	lease, err := locks.Lock(name).Acquire(t.Context(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if token, err = lease.Delegate(audience); err != nil {
		t.Fatal(err)
	}
	return lease, token
}

func mustRelease(t *testing.T, lease *core.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// startOrders starts a Go service that guards the orders by their number, and lets guests in. Below
// /header/ it answers with the tokens that a request brings.
func startOrders(t *testing.T, locks *core.Client) *httptest.Server {
	t.Helper()
	key := func(r *http.Request) (string, error) { return keyfuncs.Const("order:" + r.PathValue("id"))(r) }
	g, err := guard.New(locks, guard.Config{Keys: []keyfuncs.Func{key}, Delegates: guard.DelegatesTogether, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		g.Serve(w, r, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "done") })
	})
	mux.HandleFunc("/header/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header[delegation.Header]) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func delegating(server *redistest.Server, key string) string {
	return "reqlock {\n redis redis://" + server.Addr() + "\n delegation edge {\n key " + key + "\n }\n }"
}

// Caddy holds the lock of an order, and the Go service behind it takes the same lock as a guest.
// Without delegate_to, the service waits for Caddy, which waits for the service.
func TestDelegateTo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	orders := newLocks(t, server, "orders")
	s := startOrders(t, orders)
	addr := strings.TrimPrefix(s.URL, "http://")
	for name, secret := range map[string]string{
		"text":   "{env.DELEGATION_KEY}",
		"base64": "base64:" + base64.StdEncoding.EncodeToString([]byte(delegationSecret)),
		"second": "another-secret-that-signs-nothing-yet", // after the one that signs
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := secret
			if name == "second" {
				keys = "{env.DELEGATION_KEY}\n key " + secret
			}
			p := startCaddy(t, caddyfile(delegating(server, keys), `
				route /orders/* {
					reqlock {
						key order:{path.1}
						delegate_to orders
					}
					reqlock { # an inner handler leaves the tokens alone
						key {path.1}
						limit 2
					}
					reverse_proxy `+addr+`
				}
				route /none/* {
					uri replace /none/ /orders/
					reqlock {
						key order:{path.1}
					}
					reverse_proxy `+addr+`
				}
				route /stranger/* {
					uri replace /stranger/ /orders/
					reqlock {
						key order:{path.1}
						delegate_to strangers
					}
					reverse_proxy `+addr+`
				}
				route /error/* {
					reqlock {
						key order:{path.1}
						delegate_to orders
					}
					error 500
				}
				handle_errors {
					respond "header {header.Reqlock-Delegation}"
				}`), "DELEGATION_KEY="+delegationSecret)
			before := orders.Counters().Guests
			if a := p.do(t, http.MethodGet, "/orders/"+name); a.status != http.StatusOK || a.body != "done" {
				t.Errorf("with delegate_to: %v", a)
			}
			if orders.Counters().Guests == before {
				t.Error("the service was no guest")
			}
			for _, path := range []string{"/none/", "/stranger/"} {
				if a := p.do(t, http.MethodGet, path+name); a.status != http.StatusConflict || a.problem() != "locked" {
					t.Errorf("%s: %v", path, a)
				}
			}
			if a := p.do(t, http.MethodGet, "/error/"+name); a.body != "header " {
				t.Errorf("an error route has a token: %v", a)
			}
			if config := p.get(t, "/config/apps/reqlock"); strings.Contains(config+p.log.String(), delegationSecret) {
				t.Errorf("the configuration or the log has the secret:\n%s\n%s", config, p.log)
			}
		})
	}
}

// A request with a token of its caller enters the lock if the caller is trusted. The header of everyone
// else is removed, before the guard and before the service.
func TestTrustedDelegators(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := startOrders(t, newLocks(t, server, "orders"))
	caller := newLocks(t, server, "caller")
	header := func(path, options string) string {
		return "route " + path + " {\n uri replace " + strings.TrimSuffix(path, "*") + " /header/\n reqlock {\n key order:{path.1}\n" + options +
			"\n }\n reverse_proxy " + strings.TrimPrefix(s.URL, "http://") + "\n}\n"
	}
	p := startCaddy(t, caddyfile(delegating(server, delegationSecret)+"\nservers {\n trusted_proxies static 127.0.0.1\n }\n",
		header("/nobody/*", "")+
			header("/trusted/*", "trusted_delegators 10.0.0.0/8 127.0.0.1")+
			header("/private/*", "trusted_delegators private_ranges")+
			header("/others/*", "trusted_delegators 10.0.0.0/8 ::1")+
			header("/guest/*", "trusted_delegators 127.0.0.0/8\n delegates together")+
			header("/turns/*", "trusted_delegators 127.0.0.0/8\n delegates one_at_a_time")+
			header("/stranger/*", "trusted_delegators 10.0.0.0/8\n delegates together")+
			header("/replaced/*", "trusted_delegators 127.0.0.1\n delegate_to orders")+
			`route /on/* {
				uri replace /on/ /orders/
				reqlock {
					key order:{path.1}
					trusted_delegators 127.0.0.1
					delegates together
					delegate_to orders
				}
				reverse_proxy `+strings.TrimPrefix(s.URL, "http://")+`
			}`))
	lease, token := mustDelegate(t, caller, "reqlock:order:1", "edge")
	do := func(path string) answer {
		t.Helper()
		return p.do(t, http.MethodGet, path, delegation.Header, token, "X-Forwarded-For", "10.0.0.1")
	}
	for path, want := range map[string]string{"/nobody/2": "[]", "/trusted/2": "[" + token + "]", "/private/2": "[" + token + "]", "/others/2": "[]", "/guest/1": "[]", "/turns/1": "[]"} {
		if a := do(path); a.status != http.StatusOK || a.body != want {
			t.Errorf("%s: %v, want %s", path, a, want)
		}
	}
	for _, path := range []string{"/nobody/1", "/trusted/1", "/stranger/1"} {
		if a := do(path); a.status != http.StatusConflict || a.problem() != "locked" {
			t.Errorf("%s: %v", path, a)
		}
	}
	if a := do("/replaced/2"); a.status != http.StatusOK || strings.Contains(a.body, token) || !strings.HasPrefix(a.body, "[v1.") {
		t.Errorf("delegate_to does not replace the header: %v", a)
	}
	// The guest of the caller is the host of the service.
	if a := do("/on/1"); a.status != http.StatusOK || a.body != "done" {
		t.Errorf("a guest of a guest: %v", a)
	}
	mustRelease(t, lease)
	if a := do("/guest/1"); a.status != http.StatusConflict || a.problem() != "parent-lost" {
		t.Errorf("the lock of the caller is over: %v", a)
	}
	eventuallyEmpty(t, server.Client(t))
}
