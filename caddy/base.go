package caddylock

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A base is what each handler has: the connection of the App, and the requests that use it.
type base struct {
	connection *connection
	use        usage
}

// provision gets the connection of the App. The server of the handler, if there is one, tells when
// the process ends: waiting requests are answered then.
func (b *base) provision(ctx caddy.Context) error {
	app, err := ctx.AppIfConfigured("reqlock")
	if err != nil && !errors.Is(err, caddy.ErrNotConfigured) {
		return err
	}
	if err != nil {
		return fmt.Errorf("reqlock: caddy: the app reqlock is not configured; add the global option reqlock { redis redis://127.0.0.1:6379 }: %w", err)
	}
	if b.connection, b.use.release, err = app.(*App).retain(); err != nil {
		return err
	}
	b.use.borrow = app.(*App).borrow
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterOnShutdown(func() {
			if caddy.Exiting() {
				b.connection.drain()
			}
		})
	}
	return nil
}

// also adds a plugin to what the handler uses.
func (b *base) also(key pluginKey) {
	release, borrow := b.use.release, b.use.borrow
	b.use.release = func() {
		logEnd(plugins.Delete(key))
		release()
	}
	b.use.borrow = func() func() {
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
func (b *base) cleanup() error {
	if b.use.release != nil {
		b.use.retire(caddy.Exiting())
	}
	return nil
}

// serve leads a request through a guard. within runs the guard. detach lets its request outlive the
// client.
func (b *base) serve(r *http.Request, within func(x *exchange, detach func(), r *http.Request) error) error {
	defer b.use.enter()()
	client := newGate(r.Context())
	defer client.close()
	inner, x, err := begin(client, r)
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	if err := within(x, client.detach, inner); err != nil {
		return err
	}
	return x.err
}
