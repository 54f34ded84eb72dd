package caddylock

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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

	connection *connection
	use        usage
}

// lock returns the fields that a file of routes has as well.
func (h *Holding) lock() routes.Lock {
	return routes.Lock{
		Wait: routes.Duration(h.Wait), Lease: routes.Duration(h.Lease), MaxHold: routes.Duration(h.MaxHold),
		MaxWaiters: h.MaxWaiters, FailOpen: h.FailOpen,
	}
}

// provision gets the connection of the App. The server of the handler, if there is one, tells when
// the process ends: waiting requests are answered then.
func (h *Holding) provision(ctx caddy.Context) error {
	app, err := ctx.AppIfConfigured("reqlock")
	if err != nil && !errors.Is(err, caddy.ErrNotConfigured) {
		return err
	}
	if err != nil {
		return fmt.Errorf("reqlock: caddy: the app reqlock is not configured; add the global option reqlock { redis redis://127.0.0.1:6379 }: %w", err)
	}
	if h.connection, h.use.release, err = app.(*App).retain(); err != nil {
		return err
	}
	h.use.borrow = app.(*App).borrow
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterOnShutdown(func() {
			if caddy.Exiting() {
				h.connection.drain()
			}
		})
	}
	return nil
}

// also adds a plugin to what the handler uses.
func (h *Holding) also(key pluginKey) {
	release, borrow := h.use.release, h.use.borrow
	h.use.release = func() {
		logEnd(plugins.Delete(key))
		release()
	}
	h.use.borrow = func() func() {
		giveBack := borrow()
		if _, err := openPlugin(key); err != nil {
			return giveBack // the plugin is closed: the request gets 503
		}
		return func() {
			logEnd(plugins.Delete(key))
			giveBack()
		}
	}
}

// cleanup gives everything back once the last request has ended, or at once if the process ends.
func (h *Holding) cleanup() error {
	if h.use.release != nil {
		h.use.retire(caddy.Exiting())
	}
	return nil
}

// serve leads a request through a guard. within runs the guard.
func (h *Holding) serve(w http.ResponseWriter, r *http.Request, within func(x *exchange, held func(), r *http.Request) error) error {
	defer h.use.enter()()
	client := newGate(r.Context())
	defer client.close()
	inner, x, err := begin(client, r)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	held := client.detach
	if h.AbortOnDisconnect {
		held = func() {}
	}
	if err := within(x, held, inner); err != nil {
		return err
	}
	return x.err
}
