package caddylock

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/keyfuncs"
)

func init() { caddy.RegisterModule(new(Idempotent)) }

// Idempotent runs a POST or PATCH request once for each idempotency key that a client sends, and
// answers repeats with the first answer. An answer is recorded whole before the client gets it. So
// an answer that streams events (`text/event-stream`) passes through, and cannot be replayed.
//
// The placeholders are those of the handler `reqlock`.
type Idempotent struct {
	// Whose keys they are: a text with placeholders, such as `{http.auth.user.id}`. Equal keys of
	// two scopes are independent. A placeholder without a value gets 400: authenticate
	// first. `global` shares the keys between all callers, so a caller that guesses a key gets the
	// answer of another.
	Scope string `json:"scope"`
	// How long an answer is kept. Default: `24h`.
	TTL caddy.Duration `json:"ttl,omitempty"`
	// How long an answer of 400 to 499 is kept. Default: `10m`, or `ttl` if that is shorter.
	ErrorTTL caddy.Duration `json:"error_ttl,omitempty"`
	// How many keys one scope may use within `ttl`; a new key beyond that gets 429. Default: no bound.
	MaxKeys int `json:"max_keys,omitempty"`
	// The name of the route: the same key on another route is another key. Default: the host and
	// the path of the request. Set it to keep keys valid when the path changes.
	Route string `json:"route,omitempty"`
	// The header with the key. Default: `Idempotency-Key`.
	Header string `json:"header,omitempty"`
	// Accept only UUIDs as keys. All spellings of one are one key.
	KeyUUID bool `json:"key_uuid,omitempty"`
	// Run requests without a key, unguarded. Default: they get 400.
	Optional bool `json:"optional,omitempty"`
	// What a repeat gets if the first run ended without an answer, because the instance died or
	// lost the lock: `rerun` it, or `refuse` with 409. Default: `rerun`.
	OnUnknown string `json:"on_unknown,omitempty"`
	// The largest request body, in bytes; a longer one gets 413. Default: 1 MiB.
	MaxRequestBody int64 `json:"max_request_body,omitempty"`
	// The largest answer that is recorded, in bytes. A longer one passes through, and cannot be
	// replayed. Default: 1 MiB.
	MaxResponseBody int64 `json:"max_response_body,omitempty"`
	Holding

	guard *idempotency.Guard
}

const defaultMaxResponseBody = 1 << 20

// CaddyModule returns the Caddy module information.
func (*Idempotent) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.reqlock_idempotent", New: func() caddy.Module { return new(Idempotent) }}
}

func (h *Idempotent) config() (idempotency.Config, error) {
	lock := h.lock()
	if err := errors.Join(routes.CheckOnUnknown(h.OnUnknown), lock.Check()); err != nil {
		return idempotency.Config{}, err
	}
	scope, err := parseScope(h.Scope)
	if err != nil {
		return idempotency.Config{}, err
	}
	route := h.Route
	if route == "" {
		// idempotency would take the path, but not the host, and each spelling of a path as a path
		// of its own.
		route, scope = "caddy", keyfuncs.Join(host, currentPath, scope)
	}
	cfg := idempotency.ConfigOf(routes.Once{
		Idempotency: routes.Idempotency{
			Route: route, Header: h.Header, Optional: h.Optional, KeyUUID: h.KeyUUID,
			ErrorTTL: routes.Duration(h.ErrorTTL), MaxKeys: h.MaxKeys, TTL: routes.Duration(h.TTL), Lock: lock,
			OnUnknown: h.OnUnknown, MaxRequestBody: h.MaxRequestBody, MaxResponseBody: h.maxResponseBody(),
		},
		ScopeOf:      scope,
		ErrorHandler: refuse(h.HandleErrors),
	})
	return cfg, cfg.Validate()
}

func (h *Idempotent) maxResponseBody() int64 {
	if h.MaxResponseBody == 0 {
		return defaultMaxResponseBody
	}
	return h.MaxResponseBody
}

func parseScope(text string) (keyfuncs.Func, error) {
	scope, err := routes.ParseScope(text, "{http.auth.user.id}", parseKey)
	if err == nil && scope == nil {
		scope = idempotency.ScopeGlobal
	}
	return scope, err
}

// Provision makes the guard.
func (h *Idempotent) Provision(ctx caddy.Context) error {
	cfg, err := h.config()
	if err != nil {
		return fmt.Errorf("reqlock: caddy: %w", err)
	}
	if err := h.provision(ctx); err != nil {
		return err
	}
	cfg.Logger, cfg.Observe = newLogger(), h.connection.metrics.ObserveIdempotent
	h.guard, err = idempotency.New(h.connection.locks, cfg)
	return err
}

// ServeHTTP runs the rest of the route for the first request of a key, and answers all others in
// its place.
func (h *Idempotent) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.serve(r, func(x *exchange, held func(), inner *http.Request) (err error) {
		h.guard.Serve(w, inner, func(guarded *http.Request, rec *idempotency.Recorder) {
			held()
			if rec == nil {
				err = x.run(w, r, guarded, next)
				return
			}
			err = x.run(unflushed(rec.Wrap(w), h.maxResponseBody()), r, guarded, next)
			if err != nil {
				// Caddy answers it outside, so there is nothing to record: a repeat runs again.
				idempotency.NoStore(guarded.Context())
				rec.Bypassed(statusOf(err))
			}
		})
		return err
	})
}

// statusOf returns the status that Caddy answers an error with.
func statusOf(err error) int {
	var known caddyhttp.HandlerError
	if errors.As(err, &known) && known.StatusCode != 0 {
		return known.StatusCode
	}
	return http.StatusInternalServerError
}

// Cleanup gives the connection back.
func (h *Idempotent) Cleanup() error { return h.cleanup() }

var (
	_ caddy.Provisioner           = (*Idempotent)(nil)
	_ caddy.CleanerUpper          = (*Idempotent)(nil)
	_ caddyhttp.MiddlewareHandler = (*Idempotent)(nil)
)
