package caddylock

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/reqlock/reqlock/guard/routes"
)

// Holding is how long requests wait for a lock and hold it, and what they get if that fails.
type Holding struct {
	// How long a request waits for a held lock. Default: 0, which answers 409 at once.
	Wait caddy.Duration `json:"wait,omitempty"`
	// How long a lock is held at most. Default: 0, which renews it for as long as the request runs.
	Lease caddy.Duration `json:"lease,omitempty"`
	// How long a request may hold the lock. Then the request to the service is cancelled, and the
	// lock is no longer renewed. Default: 0, which sets no bound.
	MaxHold caddy.Duration `json:"max_hold,omitempty"`
	// How many requests of this instance may wait for one lock; the next one gets 503.
	// Default: 0, which means 1024; -1 sets no bound.
	MaxWaiters int `json:"max_waiters,omitempty"`
	// Let requests through, without a lock, while Redis is unavailable. Default: they are answered
	// 503.
	FailOpen bool `json:"fail_open,omitempty"`
	// Cancel the request to the service, and release the lock, when the client leaves. Many
	// services go on regardless, and then run beside the next holder. Default: the request runs to
	// its end under the lock.
	AbortOnDisconnect bool `json:"abort_on_disconnect,omitempty"`
	// Leave refusals to Caddy's error routes (`handle_errors`), which see the status, and the
	// placeholders below `http.reqlock`. Default: they are answered with `application/problem+json`.
	HandleErrors bool `json:"handle_errors,omitempty"`

	base
}

// lock returns the fields that a file of routes has as well.
func (h *Holding) lock() routes.Lock {
	return routes.Lock{
		Wait: routes.Duration(h.Wait), Lease: routes.Duration(h.Lease), MaxHold: routes.Duration(h.MaxHold),
		MaxWaiters: h.MaxWaiters, FailOpen: h.FailOpen,
	}
}

// serve leads a request through a guard. within runs the guard, and calls held when it holds the lock.
func (h *Holding) serve(r *http.Request, within func(x *exchange, held func(), r *http.Request) error) error {
	return h.base.serve(r, func(x *exchange, detach func(), inner *http.Request) error {
		if h.AbortOnDisconnect {
			detach = func() {}
		}
		return within(x, detach, inner)
	})
}
