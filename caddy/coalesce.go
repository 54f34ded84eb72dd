package caddylock

import (
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/felixge/httpsnoop"
	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/keyfuncs"
)

func init() { caddy.RegisterModule(new(Coalesce)) }

// Coalesce runs the rest of the route once for all requests that want the same at the same time, in
// all instances. Each of them gets the answer, the first one while it is written. An answer that is
// meant for one client is not shared, nor is a stream of events, nor one of Caddy's error routes.
//
// The placeholders are those of the handler `reqlock`.
type Coalesce struct {
	// What requests ask for: a text with placeholders, such as `report:{http.request.uri.path.1}`. It must
	// name all that the answer depends on, beside the method, the user and `vary`: requests with one key
	// share on all sites. A placeholder without a value gets 400. Default: the scheme, the host, the path
	// and the query.
	Key string `json:"key,omitempty"`
	// Who asks: a text with placeholders, such as `{http.auth.user.id}`. A placeholder without a value gets
	// 400. `everyone` is for answers that do not depend on it. Default: requests with Authorization or
	// Cookie get a shared answer only if it says `Cache-Control: public`, or if `vary` has the header.
	User string `json:"user,omitempty"`
	// The request headers that answers depend on, such as `Accept-Language`. An answer whose Vary has
	// another one is not shared.
	Vary []string `json:"vary,omitempty"`
	// Why methods other than GET and HEAD may share, such as `the POST is a query`. Then all do, and `key`
	// must be set. Default: they run.
	Unsafe string `json:"unsafe,omitempty"`

	// How long a request waits for the answer of another; then it gets 409. Default: `30s`.
	Wait caddy.Duration `json:"wait,omitempty"`
	// How long a run lasts at most. Then it is cancelled, and a request that waits runs. Default: 0, which
	// sets no bound.
	Lease caddy.Duration `json:"lease,omitempty"`
	// How long requests that come after a run still get its answer, `1h` at most. Default: `2s`.
	Keep caddy.Duration `json:"keep,omitempty"`
	// How much longer the answer is given out while one request on all instances runs for a new one, `1h` at
	// most. That one waits for it; the others do not, and learn the answer's `Age`. It needs `keep`. Default:
	// 0, which lets all wait.
	Stale caddy.Duration `json:"stale,omitempty"`
	// The same as `keep` for answers from 500 on. Default: `1s`; -1: they are not shared.
	ErrorFor caddy.Duration `json:"error_for,omitempty"`
	// The largest answer that is shared, in bytes. Default: 1 MiB.
	MaxAnswer int64 `json:"max_answer,omitempty"`
	// How many requests of this instance may wait for one answer; the next one gets 503.
	// Default: 0, which means 1024; -1 sets no bound.
	MaxWaiters int `json:"max_waiters,omitempty"`
	// How many requests run at once on all instances if answers are not shared. Default: 0, which sets no
	// bound.
	Limit int `json:"limit,omitempty"`
	// Leave out the header `Reqlock-Shared: 1` of shared answers.
	Unmarked bool `json:"unmarked,omitempty"`
	// Run each request for itself while Redis is unavailable. Default: they are answered 503.
	FailOpen bool `json:"fail_open,omitempty"`
	// Leave refusals to Caddy's error routes (`handle_errors`), which see the status, and the
	// placeholders below `http.reqlock`. Default: they are answered with `application/problem+json`.
	HandleErrors bool `json:"handle_errors,omitempty"`

	base
	guard *coalesce.Guard
}

// CaddyModule returns the Caddy module information.
func (*Coalesce) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.reqlock_coalesce", New: func() caddy.Module { return new(Coalesce) }}
}

// config returns the guard's Config. Its error names the option.
func (h *Coalesce) config() (coalesce.Config, error) {
	cfg := coalesce.Config{
		Vary: h.Vary, Unsafe: h.Unsafe, WaitTime: time.Duration(h.Wait), LeaseTime: time.Duration(h.Lease), MaxWaiters: h.MaxWaiters,
		Keep: time.Duration(h.Keep), Stale: time.Duration(h.Stale), ErrorFor: time.Duration(h.ErrorFor), MaxAnswer: h.MaxAnswer, Limit: h.Limit,
		Unmarked: h.Unmarked, FailOpen: h.FailOpen, ErrorHandler: refuse(h.HandleErrors),
	}
	lock := routes.Lock{Wait: routes.Duration(h.Wait), Lease: routes.Duration(h.Lease), MaxWaiters: h.MaxWaiters}
	if err := lock.Check(); err != nil {
		return cfg, err
	}
	var err error
	if h.Key != "" {
		if cfg.Key, err = parseKey(h.Key); err != nil {
			return cfg, fmt.Errorf("key: %w", err)
		}
	}
	if cfg.User, err = parseUser(h.User); err != nil {
		return cfg, err
	}
	for _, option := range []struct {
		name string
		only coalesce.Config
	}{
		{"vary", coalesce.Config{Vary: cfg.Vary}},
		{"unsafe", coalesce.Config{Unsafe: cfg.Unsafe, Key: cfg.Key}},
		{"wait", coalesce.Config{WaitTime: cfg.WaitTime}},
		{"keep", coalesce.Config{Keep: cfg.Keep}},
		{"stale", coalesce.Config{Keep: cfg.Keep, Stale: cfg.Stale}},
		{"error_for", coalesce.Config{ErrorFor: cfg.ErrorFor}},
		{"max_answer", coalesce.Config{MaxAnswer: cfg.MaxAnswer}},
		{"limit", coalesce.Config{Limit: cfg.Limit}},
	} {
		if err := option.only.Validate(); err != nil {
			return cfg, fmt.Errorf("%s: %w", option.name, err)
		}
	}
	return cfg, cfg.Validate()
}

func parseUser(text string) (keyfuncs.Func, error) {
	user, err := routes.ParseUser(text, "{http.auth.user.id}", parseKey)
	if err == nil && text == routes.UserEveryone {
		user = coalesce.Everyone
	}
	return user, err
}

// Provision makes the guard.
func (h *Coalesce) Provision(ctx caddy.Context) error {
	cfg, err := h.config()
	if err != nil {
		return fmt.Errorf("reqlock: caddy: reqlock_coalesce: %w", err)
	}
	if err := h.provision(ctx); err != nil {
		return err
	}
	cfg.Logger, cfg.Observe = newLogger(), h.connection.metrics.ObserveCoalesced
	h.guard, err = coalesce.New(h.connection.locks, cfg)
	return err
}

// ServeHTTP runs the rest of the route for one of the requests that want the same, and answers the
// others in its place. The run goes on when its client leaves, as long as others may get the answer.
func (h *Coalesce) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.serve(r, func(x *exchange, _ func(), inner *http.Request) (err error) {
		if inner.ContentLength == 0 {
			inner.Body = http.NoBody // Caddy wraps it, so that the guard would take it for a body.
		}
		h.guard.Serve(w, inner, func(guarded *http.Request, rec *coalesce.Recorder) {
			if rec == nil {
				err = x.run(w, r, guarded, next)
				return
			}
			// The run does not see the conditions of its client. Error routes and logs do.
			sent := r.Header
			defer func() { r.Header = sent }()
			own := rec.Wrap(w)
			// Caddy flushes every answer without a Content-Length after each write, and a flushed answer is
			// not shared.
			flushed := flushOnly(func() bool { return !rec.Shares() || isStream(own.Header()) })
			if err = x.run(httpsnoop.Wrap(own, flushed), r, guarded, next); err != nil {
				rec.Bypassed(0) // Caddy answers it outside.
			}
		})
		return err
	})
}

// Cleanup gives the connection back.
func (h *Coalesce) Cleanup() error { return h.cleanup() }

var (
	_ caddy.Provisioner           = (*Coalesce)(nil)
	_ caddy.CleanerUpper          = (*Coalesce)(nil)
	_ caddyhttp.MiddlewareHandler = (*Coalesce)(nil)
)
