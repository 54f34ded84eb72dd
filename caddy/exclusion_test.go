package caddylock_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Two services in other languages never pay an order at the same time, on any version of HTTP.
func TestExclusion(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t)
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0", "HTTP/3.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			marks := t.TempDir()
			services := []*service{startService(t, "python3", "testdata/pay.py", marks), startService(t, "node", "testdata/pay.mjs", marks)}
			p := startCaddy(t, "{\n"+globals+"reqlock {\n redis redis://"+rdb.Addr()+"\n }\n}\nhttps://localhost:{$PORT} {"+`
				tls internal
				reqlock /orders/* {
					key `+version+`:{path.1}
					wait 1m
				}
				reverse_proxy `+services[0].addr()+" "+services[1].addr()+` {
					lb_policy round_robin
				}
			`+"\n}\n")
			p.client = p.newClient(t, transport(t, p, version))
			const orders, each = 2, 12
			var requests sync.WaitGroup
			for i := range orders * each {
				requests.Go(func() {
					a := send(t.Context(), p.client, http.MethodPost, fmt.Sprintf("https://localhost:%s/orders/%d/pay?ms=5", p.port, i%orders), "")
					if a.status != http.StatusOK || a.proto != version {
						t.Errorf("%v by %s", a, a.proto)
					}
				})
			}
			requests.Wait()
			var calls []call
			for _, s := range services {
				own := s.journal(t)
				if len(own) == 0 {
					t.Error("a service was not called")
				}
				calls = append(calls, own...)
			}
			if len(calls) != orders*each {
				t.Errorf("%d calls, want %d", len(calls), orders*each)
			}
			for _, c := range calls {
				if c.Overlaps {
					t.Errorf("a call of %s overlaps with another", c.Path)
				}
			}
			if t.Failed() {
				t.Logf("%s", p.log)
			}
		})
	}
}

// transport returns a transport for one version of HTTP.
func transport(t testing.TB, p *process, version string) http.RoundTripper {
	t.Helper()
	secure := p.tlsConfig(t)
	if version == "HTTP/3.0" {
		h3 := &http3.Transport{TLSClientConfig: secure}
		t.Cleanup(func() { _ = h3.Close() })
		return h3
	}
	tcp := &http.Transport{TLSClientConfig: secure, Protocols: new(http.Protocols)}
	tcp.Protocols.SetHTTP1(version == "HTTP/1.1")
	tcp.Protocols.SetHTTP2(version == "HTTP/2.0")
	return tcp
}

// While an order is busy, other requests for it are refused, and other orders are not affected.
func TestRefusal(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock /orders/* {
			key order:{path.1}
		}
		reverse_proxy `+s.addr()))
	first := p.doAsync(t, http.MethodPost, "/orders/42/pay?gate=a")
	s.eventuallyCalls(t, 1)
	a := p.do(t, http.MethodPost, "/orders/42/pay")
	if a.status != http.StatusConflict || a.problem() != "locked" || a.header.Get("Retry-After") != "1" || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("the second request got %v %v", a, a.header)
	}
	if a := p.do(t, http.MethodPost, "/orders/43/pay"); a.status != http.StatusOK {
		t.Errorf("another order got %v", a)
	}
	if a := p.do(t, http.MethodPost, "/elsewhere/42"); a.status != http.StatusOK {
		t.Errorf("a path that does not match got %v", a)
	}
	s.open(t, "a")
	if a := mustReceive(t, first); a.status != http.StatusOK || a.body != "paid by python, number 1\n" {
		t.Errorf("the first request got %v", a)
	}
}

// A client that leaves while it waits is never served.
func TestClientLeavesWhileWaiting(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	rdb := redis.Client(t)
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock {
			key order
			wait 10m
		}
		reverse_proxy `+s.addr()))
	first := p.doAsync(t, http.MethodPost, "/?gate=a")
	s.eventuallyCalls(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	second := make(chan answer, 1)
	go func() { second <- send(ctx, p.client, http.MethodPost, p.url("/gone"), "") }()
	eventuallyWaiting(t, rdb, "reqlock:order")
	leave()
	<-second
	eventually(t, "the waiter to leave", func() bool {
		return rdb.PubSubNumSub(t.Context(), "redisson_lock__channel:{reqlock:order}").Val()["redisson_lock__channel:{reqlock:order}"] == 0
	})
	s.open(t, "a")
	mustReceive(t, first)
	if a := p.do(t, http.MethodPost, "/third"); a.status != http.StatusOK {
		t.Errorf("the next request got %v", a)
	}
	for _, c := range s.journal(t) {
		if c.Path == "/gone" {
			t.Error("the request of the client that left ran")
		}
	}
}

// A client that leaves does not stop the service, so the lock is held until the service is done.
// With abort_on_disconnect the lock is free at once.
func TestClientLeavesWhileHolding(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	rdb := redis.Client(t)
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock /kept {
			key kept
		}
		reqlock /aborted {
			key aborted
			abort_on_disconnect
		}
		reverse_proxy `+s.addr()))
	for i, path := range []string{"/kept", "/aborted"} {
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan answer, 1)
		go func() { first <- send(ctx, p.client, http.MethodPost, p.url(path+"?gate=a"), "") }()
		s.eventuallyCalls(t, i+1)
		leave()
		<-first
	}
	eventually(t, "the aborted request to release its lock", func() bool { return rdb.Exists(t.Context(), "reqlock:aborted").Val() == 0 })
	if a := p.do(t, http.MethodPost, "/kept"); a.problem() != "locked" {
		t.Errorf("while the service still works: %v", a)
	}
	s.open(t, "a")
	eventuallyEmpty(t, rdb)
	if a := p.do(t, http.MethodPost, "/kept"); a.status != http.StatusOK {
		t.Errorf("after that: %v", a)
	}
}
