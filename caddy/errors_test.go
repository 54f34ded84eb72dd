package caddylock_test

import (
	"net/http"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Error routes see the status and the problem, and may answer as they like.
func TestErrorRoutes(t *testing.T) {
	t.Parallel()
	s := startPython(t)
	p := startCaddy(t, caddyfile("reqlock {\n embedded\n }", `
		reqlock {
			key {header.X-Order}
			retry_after 7s
			handle_errors
		}
		reverse_proxy `+s.addr()+`
		handle_errors {
			header Waited {http.reqlock.waited_ms}
			@locked expression {http.reqlock.problem} == "urn:reqlock:problem:locked"
			respond @locked "{err.status_code} busy: {http.reqlock.title}. {http.reqlock.detail}" 423
			respond "{err.status_code} {http.reqlock.problem}"
		}`))
	if a := p.do(t, http.MethodGet, "/"); a.status != http.StatusBadRequest || a.body != "400 urn:reqlock:problem:key-missing" {
		t.Errorf("without a key: %v", a)
	}
	first := p.doAsync(t, http.MethodPost, "/?gate=a", "X-Order", "1")
	s.eventuallyCalls(t, 1)
	a := p.do(t, http.MethodPost, "/", "X-Order", "1")
	want := "409 busy: Another request is in progress. Another request for the same resource is in progress. Try again later."
	if a.status != 423 || a.body != want || a.header.Get("Retry-After") != "7" || a.header.Get("Waited") == "" {
		t.Errorf("%v %v, want %q", a, a.header, want)
	}
	s.open(t, "a")
	if a := mustReceive(t, first); a.status != http.StatusOK {
		t.Errorf("the first request got %v", a)
	}
}

// The error of a handler inside reaches Caddy's error routes, and the lock is free then.
func TestErrorsFromInside(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://"+redis.Addr()+"\n }", `
		reqlock {
			key order
		}
		reqlock_idempotent /once/* {
			scope global
		}
		error /teapot "no coffee" 418
		error /once/teapot "no coffee" 418
		reverse_proxy 127.0.0.1:1
		handle_errors {
			respond "{err.status_code} {err.message}{http.reqlock.problem}"
		}`))
	for range 2 {
		if a := p.do(t, http.MethodGet, "/teapot"); a.status != 418 || a.body != "418 no coffee" {
			t.Errorf("%v", a)
		}
		// A failure is not recorded: a repeat runs again, and the record of neither is left.
		if a := p.do(t, http.MethodPost, "/once/teapot", "Idempotency-Key", "k1"); a.status != 418 || a.body != "418 no coffee" || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%v", a)
		}
		if a := p.do(t, http.MethodPost, "/once/down", "Idempotency-Key", "k2"); a.status != http.StatusBadGateway {
			t.Errorf("%v", a)
		}
	}
	eventuallyEmpty(t, redis.Client(t))
}

// Without Redis, Caddy starts, and answers 503 or lets requests through.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	p := startCaddy(t, caddyfile("reqlock {\n redis redis://127.0.0.1:1\n command_timeout 1s\n }", `
		reqlock /closed {
			key order
		}
		reqlock /open {
			key order
			fail_open
		}
		reqlock_idempotent /once {
			scope global
		}
		respond "served"`))
	if !p.eventuallyLogs(t, "locks do not work yet") {
		t.Errorf("the log does not say that Redis is down:\n%s", p.log)
	}
	if a := p.do(t, http.MethodGet, "/closed"); a.status != http.StatusServiceUnavailable || a.problem() != "backend-unavailable" {
		t.Errorf("%v", a)
	}
	if a := p.do(t, http.MethodGet, "/open"); a.status != http.StatusOK || a.body != "served" {
		t.Errorf("%v", a)
	}
	if a := p.do(t, http.MethodPost, "/once", "Idempotency-Key", "k"); a.problem() != "backend-unavailable" {
		t.Errorf("%v", a)
	}
}
