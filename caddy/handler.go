package caddylock

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/keyfuncs"
)

func init() { caddy.RegisterModule(new(Handler)) }

// Handler runs one request with the same key at a time, or as many as its limit says. It takes a lock or
// a permit in Redis, runs the rest of the route, and releases it. Others wait, or get 409, or 429 beyond
// a limit.
//
// These placeholders are set for the rest of the route and for error routes:
//
// Placeholder | Description
// ------------|---------------
// `{http.reqlock.waited_ms}` | How many milliseconds the request waited for its lock
// `{http.reqlock.token}` | The fencing token of the lock, with `fenced` or the mode of this name: each request of a key gets a larger one
// `{http.reqlock.problem}` | The type of the problem, such as `urn:reqlock:problem:locked`, if the request was refused
// `{http.reqlock.title}` | What the type means
// `{http.reqlock.detail}` | What the client can do
type Handler struct {
	// The keys: texts with placeholders, such as `order:{http.request.uri.path.1}`. A request gets
	// the locks of all its keys or none. A placeholder without a value gets 400. Beside
	// Caddy's placeholders there are `{json.POINTER}`, `{form.NAME}` and `{body.hash}`, which read
	// the body. Two different lists of values never make the same key.
	Keys []string `json:"keys,omitempty"`
	// The kind of lock: `exclusive`, `fair` (first come, first served), `fenced`, `read`, `write`,
	// or `read_write` (GET and HEAD read, the rest writes). Default: `exclusive`.
	Mode string `json:"mode,omitempty"`
	// Give each request that holds the lock a fencing token. It goes with every mode but `read`, and
	// needs a single key. With `read_write`, GET and HEAD have no tokens.
	Fenced bool `json:"fenced,omitempty"`
	// Let up to this many requests with the same key in at a time, at least 2, in place of one under a
	// lock. The next one waits, and then gets 429. It does not go with `mode` and `fenced`. Default: 0,
	// which is a lock.
	Limit int `json:"limit,omitempty"`
	// A WebAssembly plugin that decides on keys, mode, tokens, limit and times for each request, in
	// place of `keys`, `mode`, `fenced` and `limit`. It is loaded again when the file changes.
	Policy string `json:"policy,omitempty"`
	// The text that the plugin gets as its settings.
	PolicySettings string `json:"policy_settings,omitempty"`
	// Read up to this many bytes of the body before the lock is acquired, so that a slow client
	// does not hold it, and a client that leaves is noticed while it waits. A longer body is
	// answered 413. Default: 0, which is off.
	BufferBody int64 `json:"buffer_body,omitempty"`
	// The Retry-After of refusals. Default: `1s`.
	RetryAfter caddy.Duration `json:"retry_after,omitempty"`
	Delegating
	Holding

	guard *guard.Guard
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.reqlock", New: func() caddy.Module { return new(Handler) }}
}

// config returns the guard's Config, without the plugin.
func (h *Handler) config() (guard.Config, error) {
	route := routes.Route{Keys: h.Keys, Mode: h.Mode, Fenced: h.Fenced, Limit: h.Limit, Delegates: h.Delegates, Lock: h.lock(), BufferBody: h.BufferBody, RetryAfter: routes.Duration(h.RetryAfter)}
	cfg, err := route.Guard(routes.Options{ErrorHandler: refuse(h.HandleErrors)})
	if err != nil {
		return cfg, err
	}
	if err := h.Delegating.check(); err != nil {
		return cfg, err
	}
	switch {
	case h.Policy == "" && len(h.Keys) == 0:
		return cfg, errors.New("there is neither a key nor a policy; add a line such as key order:{path.1}")
	case h.Policy != "" && (len(h.Keys) > 0 || h.Mode != "" || h.Fenced || h.Limit != 0):
		return cfg, errors.New("policy decides on keys, mode, tokens and limit; leave out key, mode, fenced and limit, or policy")
	case h.Policy == "" && h.PolicySettings != "":
		return cfg, errors.New("there is policy_settings, but no policy")
	case h.Policy != "":
		// Validate needs one. The plugin takes its place.
		cfg.Policy = func(*http.Request, *guard.Policy) error { return keyfuncs.ErrSkip }
		return cfg, cfg.Validate()
	}
	for _, template := range h.Keys {
		key, err := parseKey(template)
		if err != nil {
			return cfg, err
		}
		cfg.Keys = append(cfg.Keys, key)
	}
	return cfg, cfg.Validate()
}

// Provision makes the guard.
func (h *Handler) Provision(ctx caddy.Context) error {
	cfg, err := h.config()
	if err != nil {
		return fmt.Errorf("reqlock: caddy: %w", err)
	}
	if err := h.provision(ctx); err != nil {
		return err
	}
	if !h.connection.delegates && (h.delegates() || h.DelegateTo != "") {
		return errors.New("reqlock: caddy: delegates and delegate_to need secrets; add delegation NAME { key SECRET } to the global option reqlock")
	}
	if h.Policy != "" {
		if cfg.Policy, err = h.openPolicy(); err != nil {
			return err
		}
	}
	cfg.Logger, cfg.Observe = newLogger(), h.connection.metrics.Observe
	h.guard, err = guard.New(h.connection.locks, cfg)
	return err
}

// openPolicy opens the plugin until the handler is cleaned up.
func (h *Handler) openPolicy() (guard.PolicyFunc, error) {
	file, err := filepath.Abs(h.Policy)
	if err != nil {
		return nil, fmt.Errorf("reqlock: caddy: policy %s: %w", h.Policy, err)
	}
	key := pluginKey{file, h.PolicySettings}
	p, err := openPlugin(key)
	if err != nil {
		return nil, err
	}
	h.also(key)
	return p.Policy, nil
}

// ServeHTTP runs the rest of the route under the lock of the request, or answers in its place.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.serve(r, func(x *exchange, held func(), inner *http.Request) (err error) {
		h.admit(x, inner)
		h.guard.Serve(w, inner, func(w http.ResponseWriter, guarded *http.Request) {
			held()
			var retract func()
			if retract, err = h.delegate(x, guarded); err != nil {
				return
			}
			defer retract()
			err = x.run(w, r, guarded, next)
		})
		return err
	})
}

// Cleanup gives the connection and the plugin back.
func (h *Handler) Cleanup() error { return h.cleanup() }

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
