package caddylock

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"
	"github.com/reqlock/reqlock/guard/routes"
)

// A lock goes around everything that may answer, and inside authentication, so that keys may name
// the user. The order in the file does not matter, except in a route block.
func init() {
	httpcaddyfile.RegisterGlobalOption("reqlock", parseApp)
	httpcaddyfile.RegisterHandlerDirective("reqlock_idempotent", parseIdempotent)
	httpcaddyfile.RegisterHandlerDirective("reqlock_coalesce", parseCoalesce)
	httpcaddyfile.RegisterHandlerDirective("reqlock", parseHandler)
	httpcaddyfile.RegisterDirectiveOrder("reqlock_idempotent", httpcaddyfile.Before, "invoke")
	httpcaddyfile.RegisterDirectiveOrder("reqlock_coalesce", httpcaddyfile.Before, "invoke")
	httpcaddyfile.RegisterDirectiveOrder("reqlock", httpcaddyfile.Before, "invoke")
}

// An option reads what follows its name on the line. d is at the name.
type option func(d *caddyfile.Dispenser) error

// parseBlock reads a directive and the options in its block, each once, except those in repeated.
func parseBlock(d *caddyfile.Dispenser, options map[string]option, repeated ...string) error {
	d.Next() // the directive
	if d.NextArg() {
		return d.Errf("unexpected argument %q: write the options into a block { ... }", d.Val())
	}
	seen := make(map[string]bool)
	for _, name := range repeated {
		seen[name] = false
	}
	for d.NextBlock(0) {
		name := d.Val()
		read, ok := options[name]
		if !ok {
			return d.Errf("unknown option %q", name)
		}
		if _, repeats := seen[name]; !repeats {
			seen[name] = true
		} else if seen[name] {
			return d.Errf("%s is given more than once", name)
		}
		if err := read(d); err != nil {
			return err
		}
	}
	return nil
}

// word reads the one argument of an option.
func word(d *caddyfile.Dispenser) (string, error) {
	name := d.Val()
	var value string
	if !d.Args(&value) || value == "" {
		return "", d.Errf("%s needs a value", name)
	}
	if d.NextArg() {
		return "", d.Errf("%s takes one value, and %q follows it; quote a value with blanks", name, d.Val())
	}
	return value, nil
}

func textOption(to *string) option {
	return func(d *caddyfile.Dispenser) (err error) {
		*to, err = word(d)
		return err
	}
}

// checkedOption is a text that check accepts.
func checkedOption(to *string, check func(string) error) option {
	return func(d *caddyfile.Dispenser) error {
		value, err := word(d)
		if err != nil {
			return err
		}
		if err := check(value); err != nil {
			return d.WrapErr(err)
		}
		*to = value
		return nil
	}
}

func durationOption(to *caddy.Duration) option {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := word(d)
		if err != nil {
			return err
		}
		duration, err := parseDuration(value)
		if err != nil {
			return d.Errf("%s is %q; want a duration such as 500ms, 2s or 24h, or 0", name, value)
		}
		*to = caddy.Duration(duration)
		return nil
	}
}

// periodOption is a duration whose zero would mean the default, so a file leaves it out. also are
// words with a meaning of their own.
func periodOption(to *caddy.Duration, also map[string]caddy.Duration) option {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := word(d)
		if err != nil {
			return err
		}
		if meaning, ok := also[value]; ok {
			*to = meaning
			return nil
		}
		duration, err := parseDuration(value)
		if err != nil || duration == 0 {
			return d.Errf("%s is %q; want a duration such as 500ms, 2s or 1m; without the line it has its default", name, value)
		}
		*to = caddy.Duration(duration)
		return nil
	}
}

// parseDuration refuses negative durations.
func parseDuration(value string) (time.Duration, error) {
	d, err := caddy.ParseDuration(value)
	if err == nil && d < 0 {
		err = errors.New("it is negative")
	}
	return d, err
}

func numberOption(to *int, least int) option {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := word(d)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < least {
			return d.Errf("%s is %q; want a number, at least %d", name, value, least)
		}
		*to = n
		return nil
	}
}

// sizeOption is a number of bytes, such as 64KiB.
func sizeOption(to *int64) option {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := word(d)
		if err != nil {
			return err
		}
		size, err := humanize.ParseBytes(value)
		if err != nil || size > math.MaxInt64 {
			return d.Errf("%s is %q; want a size such as 64KiB or 1MB", name, value)
		}
		*to = int64(size)
		return nil
	}
}

// checkFile reports why a file cannot be read.
func checkFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	return file.Close()
}

func hasPlaceholder(text string) bool { return strings.Contains(text, "{") }

func flagOption(to *bool) option {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		if d.NextArg() {
			return d.Errf("%s takes no value, and %q follows it", name, d.Val())
		}
		*to = true
		return nil
	}
}

func (h *Holding) options() map[string]option {
	return map[string]option{
		"wait":                durationOption(&h.Wait),
		"lease":               durationOption(&h.Lease),
		"max_hold":            durationOption(&h.MaxHold),
		"max_waiters":         numberOption(&h.MaxWaiters, -1),
		"fail_open":           flagOption(&h.FailOpen),
		"abort_on_disconnect": flagOption(&h.AbortOnDisconnect),
		"handle_errors":       flagOption(&h.HandleErrors),
	}
}

// UnmarshalCaddyfile parses the directive:
//
//	reqlock [<matcher>] {
//		key      <template>
//		mode     exclusive|fair|fenced|read|write|read_write
//		fenced
//		limit    <number>
//		wait     <duration>
//		lease    <duration>
//		max_hold <duration>
//		max_waiters <number>
//		policy          <file>
//		policy_settings <text>
//		buffer_body <size>
//		retry_after <duration>
//		delegates together|one_at_a_time|none
//		trusted_delegators <address>|<cidr>|private_ranges...
//		delegate_to <name>
//		fail_open
//		abort_on_disconnect
//		handle_errors
//	}
//
// Repeat key for several keys.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := h.options()
	options["key"] = func(d *caddyfile.Dispenser) error {
		var key string
		err := checkedOption(&key, func(template string) error {
			_, err := parseKey(template)
			return err
		})(d)
		h.Keys = append(h.Keys, key)
		return err
	}
	options["mode"] = checkedOption(&h.Mode, func(name string) error {
		_, err := routes.ParseMode(name)
		return err
	})
	options["fenced"] = flagOption(&h.Fenced)
	options["limit"] = numberOption(&h.Limit, 0)
	options["policy"] = checkedOption(&h.Policy, checkFile)
	options["policy_settings"] = textOption(&h.PolicySettings)
	options["buffer_body"] = sizeOption(&h.BufferBody)
	options["retry_after"] = durationOption(&h.RetryAfter)
	options["delegates"] = textOption(&h.Delegates)
	options["trusted_delegators"] = func(d *caddyfile.Dispenser) error {
		if h.TrustedDelegators = d.RemainingArgs(); len(h.TrustedDelegators) == 0 {
			return d.Err("trusted_delegators needs addresses, such as 10.0.0.0/8")
		}
		_, err := parseDelegators(h.TrustedDelegators)
		return wrapped(d, err)
	}
	options["delegate_to"] = textOption(&h.DelegateTo)
	if err := parseBlock(d, options, "key"); err != nil {
		return err
	}
	if _, err := h.config(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// UnmarshalCaddyfile parses the directive:
//
//	reqlock_idempotent [<matcher>] {
//		scope <template>|global
//		ttl   <duration>
//		error_ttl <duration>
//		max_keys  <number>
//		route <name>
//		header <name>
//		key_uuid
//		optional
//		on_unknown rerun|refuse
//		max_request_body  <size>
//		max_response_body <size>
//		wait     <duration>
//		lease    <duration>
//		max_hold <duration>
//		max_waiters <number>
//		fail_open
//		abort_on_disconnect
//		handle_errors
//	}
func (h *Idempotent) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := h.options()
	options["scope"] = checkedOption(&h.Scope, func(text string) error {
		_, err := parseScope(text)
		return err
	})
	options["ttl"] = durationOption(&h.TTL)
	options["error_ttl"] = durationOption(&h.ErrorTTL)
	options["max_keys"] = numberOption(&h.MaxKeys, 0)
	options["key_uuid"] = flagOption(&h.KeyUUID)
	options["route"] = textOption(&h.Route)
	options["header"] = textOption(&h.Header)
	options["optional"] = flagOption(&h.Optional)
	options["on_unknown"] = checkedOption(&h.OnUnknown, routes.CheckOnUnknown)
	options["max_request_body"] = sizeOption(&h.MaxRequestBody)
	options["max_response_body"] = sizeOption(&h.MaxResponseBody)
	if err := parseBlock(d, options); err != nil {
		return err
	}
	if _, err := h.config(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// UnmarshalCaddyfile parses the directive:
//
//	reqlock_coalesce [<matcher>] {
//		key    <template>
//		user   <template>|everyone
//		vary   <header>...
//		unsafe <why>
//		wait   <duration>
//		lease  <duration>
//		keep   <duration>
//		stale  <duration>
//		error_for   <duration>|-1
//		max_answer  <size>
//		max_waiters <number>
//		limit       <number>
//		unmarked
//		fail_open
//		handle_errors
//	}
func (h *Coalesce) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := make(map[string]option)
	options["key"] = checkedOption(&h.Key, func(template string) error {
		_, err := parseKey(template)
		return err
	})
	options["user"] = checkedOption(&h.User, func(text string) error {
		_, err := parseUser(text)
		return err
	})
	options["vary"] = func(d *caddyfile.Dispenser) error {
		if h.Vary = d.RemainingArgs(); len(h.Vary) == 0 {
			return d.Err("vary needs the names of headers, such as Accept-Language")
		}
		return nil
	}
	options["unsafe"] = textOption(&h.Unsafe)
	options["wait"] = periodOption(&h.Wait, nil)
	options["lease"] = durationOption(&h.Lease)
	options["keep"] = periodOption(&h.Keep, nil)
	options["stale"] = periodOption(&h.Stale, nil)
	options["error_for"] = periodOption(&h.ErrorFor, map[string]caddy.Duration{"-1": -1})
	options["max_answer"] = sizeOption(&h.MaxAnswer)
	options["max_waiters"] = numberOption(&h.MaxWaiters, -1)
	options["limit"] = numberOption(&h.Limit, 1)
	options["unmarked"] = flagOption(&h.Unmarked)
	options["fail_open"] = flagOption(&h.FailOpen)
	options["handle_errors"] = flagOption(&h.HandleErrors)
	if err := parseBlock(d, options); err != nil {
		return err
	}
	if _, err := h.config(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// UnmarshalCaddyfile parses the global option:
//
//	reqlock {
//		redis <url>
//		sentinel <master> <host:port>...
//		sentinel_password <text>
//		cluster <host:port>...
//		embedded
//		username <name>
//		password <text>
//		password_file <file>
//		db <number>
//		tls {
//			ca <file>
//			certificate <file> <key file>
//			server_name <name>
//		}
//		client_id <name>
//		watchdog <duration>
//		command_timeout <duration>
//		replica_acks <number>
//		max_waiting <number>
//		publish auto|plain|sharded|both
//		delegation <name> {
//			key <secret>
//		}
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	sentinelPassword := ""
	options := map[string]option{
		"redis": checkedOption(&a.Redis, func(url string) error {
			if hasPlaceholder(url) {
				return nil
			}
			return checkURL(url)
		}),
		"sentinel":          a.parseSentinel,
		"sentinel_password": textOption(&sentinelPassword),
		"cluster": func(d *caddyfile.Dispenser) error {
			a.Cluster = d.RemainingArgs()
			return wrapped(d, checkAddresses("cluster", a.Cluster))
		},
		"embedded":        flagOption(&a.Embedded),
		"username":        textOption(&a.Username),
		"password":        textOption(&a.Password),
		"password_file":   textOption(&a.PasswordFile),
		"db":              numberOption(&a.DB, 0),
		"tls":             a.parseTLS,
		"client_id":       textOption(&a.ClientID),
		"watchdog":        durationOption(&a.Watchdog),
		"command_timeout": durationOption(&a.CommandTimeout),
		"replica_acks":    numberOption(&a.ReplicaAcks, 0),
		"max_waiting":     numberOption(&a.MaxWaiting, -1),
		"publish":         textOption(&a.Publish),
		"delegation":      a.parseDelegation,
	}
	for _, name := range []string{"watchdog", "command_timeout", "publish"} {
		read := options[name]
		options[name] = func(d *caddyfile.Dispenser) error {
			if err := read(d); err != nil {
				return err
			}
			return wrapped(d, a.checkOptions())
		}
	}
	if err := parseBlock(d, options); err != nil {
		return err
	}
	switch {
	case sentinelPassword != "" && a.Sentinel == nil:
		return d.Err("sentinel_password needs sentinel")
	case sentinelPassword != "":
		a.Sentinel.Password = sentinelPassword
	}
	return wrapped(d, a.check())
}

// wrapped adds file and line to an error.
func wrapped(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

func (a *App) parseSentinel(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return d.Err("want sentinel MASTER HOST:PORT...")
	}
	a.Sentinel = &Sentinel{Master: args[0], Addresses: args[1:]}
	return wrapped(d, checkAddresses("sentinel", args[1:]))
}

// parseDelegation shows no part of a key in an error.
func (a *App) parseDelegation(d *caddyfile.Dispenser) error {
	a.Delegation = new(Delegation)
	if !d.AllArgs(&a.Delegation.Name) {
		return d.Err("want delegation NAME { key SECRET }")
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		var key string
		if d.Val() != "key" {
			return d.Errf("unknown option %q of delegation", d.Val())
		}
		if !d.AllArgs(&key) || key == "" {
			return d.Err("want key SECRET; quote a secret with blanks")
		}
		a.Delegation.Keys = append(a.Delegation.Keys, key)
	}
	return wrapped(d, a.Delegation.check())
}

func (a *App) parseTLS(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Errf("unexpected argument %q: write the options of tls into a block { ... }", d.Val())
	}
	a.TLS = new(TLS)
	options := map[string]option{
		"ca":          checkedOption(&a.TLS.CA, checkFile),
		"server_name": textOption(&a.TLS.ServerName),
		"certificate": func(d *caddyfile.Dispenser) error {
			if !d.AllArgs(&a.TLS.Certificate, &a.TLS.Key) {
				return d.Err("want certificate FILE KEYFILE")
			}
			return wrapped(d, errors.Join(checkFile(a.TLS.Certificate), checkFile(a.TLS.Key)))
		},
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		read, ok := options[d.Val()]
		if !ok {
			return d.Errf("unknown option %q of tls", d.Val())
		}
		if err := read(d); err != nil {
			return err
		}
	}
	return nil
}

func parseApp(d *caddyfile.Dispenser, _ any) (any, error) {
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "reqlock", Value: caddyconfig.JSON(app, nil)}, nil
}

func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, parseDirective(h, handler)
}

func parseIdempotent(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Idempotent)
	return handler, parseDirective(h, handler)
}

func parseCoalesce(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Coalesce)
	return handler, parseDirective(h, handler)
}

func parseDirective(h httpcaddyfile.Helper, directive caddyfile.Unmarshaler) error {
	if h.Option("reqlock") == nil {
		h.Next() // the directive, whose line the error names
		return h.Err("there is no global option reqlock, which says where Redis is; add { reqlock { redis redis://127.0.0.1:6379 } } at the top of the file")
	}
	return directive.UnmarshalCaddyfile(h.Dispenser)
}

var (
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ caddyfile.Unmarshaler = (*Idempotent)(nil)
	_ caddyfile.Unmarshaler = (*Coalesce)(nil)
)
