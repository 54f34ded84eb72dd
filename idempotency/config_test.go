package idempotency

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Config)
		says   string // empty: it is valid
	}{
		"only Scope":         {func(*Config) {}, ""},
		"everything":         {func(c *Config) { *c = everything() }, ""},
		"no Scope":           {func(c *Config) { c.Scope = nil }, "Scope is nil"},
		"Route":              {func(c *Config) { c.Route = "/pay/{}" }, ""},
		"Route, a name":      {func(c *Config) { c.Route = "payments:create" }, ""},
		"Route, a method":    {func(c *Config) { c.Route = "POST /pay/{}" }, `Route is "POST /pay/{}", which contains blanks`},
		"Route, a wildcard":  {func(c *Config) { c.Route = "/pay/{id}" }, `Route is "/pay/{id}", which has a wildcard with a name`},
		"Route, a colon":     {func(c *Config) { c.Route = "/pay/:id" }, "has a wildcard with a name"},
		"Route, a star":      {func(c *Config) { c.Route = "/pay/*rest" }, "has a wildcard with a name"},
		"Header":             {func(c *Config) { c.Header = "Idempotency Key" }, `Header is "Idempotency Key", which cannot carry the key`},
		"Header Host":        {func(c *Config) { c.Header = "host" }, `Header is "host", which cannot carry the key`},
		"no Methods":         {func(c *Config) { c.Methods = []string{} }, "Methods is empty"},
		"Methods, small":     {func(c *Config) { c.Methods = []string{"POST", "patch"} }, `Methods has "patch"`},
		"Methods, none":      {func(c *Config) { c.Methods = []string{""} }, `Methods has ""`},
		"WaitTime":           {func(c *Config) { c.WaitTime = core.WaitForever }, "WaitTime is WaitForever"},
		"LeaseTime":          {func(c *Config) { c.LeaseTime = 1 }, "LeaseTime is 1ns"},
		"MaxWaiters":         {func(c *Config) { c.MaxWaiters = -2 }, "MaxWaiters is -2"},
		"TTL":                {func(c *Config) { c.TTL = time.Microsecond }, "TTL is 1µs"},
		"ErrorTTL":           {func(c *Config) { c.ErrorTTL = time.Microsecond }, "ErrorTTL is 1µs"},
		"ErrorTTL, too long": {func(c *Config) { c.ErrorTTL, c.TTL = time.Hour, time.Minute }, "ErrorTTL is 1h0m0s and TTL 1m0s"},
		"MaxKeys":            {func(c *Config) { c.MaxKeys = -1 }, "MaxKeys is -1"},
		"TTL, negative":      {func(c *Config) { c.TTL = -time.Hour }, "TTL is -1h0m0s"},
		"MaxRequestBody":     {func(c *Config) { c.MaxRequestBody = -1 }, "MaxRequestBody is -1"},
		"MaxResponseBody":    {func(c *Config) { c.MaxResponseBody = -1 }, "MaxResponseBody is -1"},
		"OnUnknown":          {func(c *Config) { c.OnUnknown = 2 }, "OnUnknown is 2"},
		"Refuse, not for so": {func(c *Config) { c.OnUnknown, c.TTL, c.LeaseTime = OutcomeRefuse, time.Second, time.Minute }, "TTL must be at least as long"},
		"Refuse, MaxHold":    {func(c *Config) { c.OnUnknown, c.MaxHold = OutcomeRefuse, 25*time.Hour }, "MaxHold 25h0m0s; with OutcomeRefuse"},
		"MaxHold":            {func(c *Config) { c.MaxHold = -1 }, "MaxHold is -1ns"},
		"Refuse, default":    {func(c *Config) { c.OnUnknown, c.LeaseTime = OutcomeRefuse, 25*time.Hour }, "TTL is 24h0m0s"},
		"Fingerprint":        {func(c *Config) { c.Fingerprint = FingerprintNone + 1 }, "Fingerprint is 3; use one of the constants"},
		"no Fields":          {func(c *Config) { c.Fingerprint = FingerprintFields() }, "Fields()"},
		"bad pointer":        {func(c *Config) { c.Fingerprint = FingerprintFields("/a", "b") }, `Fields("b")`},
		"bad escape":         {func(c *Config) { c.Fingerprint = FingerprintFields("/a~2") }, `Fields("/a~2")`},
	} {
		cfg := Config{Scope: ScopeGlobal}
		test.change(&cfg)
		err := cfg.Validate()
		if test.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), test.says) || !strings.HasPrefix(err.Error(), "reqlock: idempotency: ") {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
		if _, err := New(nil, cfg); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%s: New: %v", name, err)
		}
	}
	if _, err := New(nil, Config{Scope: ScopeGlobal}); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), "no *core.Client") {
		t.Errorf("New without a client: %v", err)
	}
}

func everything() Config {
	return Config{
		Scope: ScopeGlobal, Route: "payments", Header: "x-token", Optional: true, Strict: true, Methods: []string{"POST", "PUT", "M-SEARCH"},
		WaitTime: time.Second, LeaseTime: time.Second, MaxHold: time.Second, MaxWaiters: -1, TTL: time.Minute, ErrorTTL: time.Minute, MaxKeys: 1,
		Fingerprint: FingerprintFields("", "/a~1b/~0/0"), Store: DefaultStore, OnUnknown: OutcomeRefuse, MaxRequestBody: 1, MaxResponseBody: 1,
		Headers: DefaultHeaders, FailOpen: true, ErrorHandler: guard.WriteProblem, Observe: func(*http.Request, guard.Outcome) {},
	}
}

func TestDefaultStore(t *testing.T) {
	t.Parallel()
	kept := []int{200, 201, 204, 206, 299, 303, 304, 400, 402, 403, 404, 410, 413, 422, 451}
	dropped := []int{401, 408, 409, 412, 416, 421, 423, 425, 429, 500, 502, 503, 504, 599, 999}
	for _, status := range kept {
		if !DefaultStore(status, nil) {
			t.Errorf("%d is dropped", status)
		}
	}
	for _, status := range dropped {
		if DefaultStore(status, nil) {
			t.Errorf("%d is kept", status)
		}
	}
}

func TestDefaultHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Set-Cookie", "Date", "Www-Authenticate", "Alt-Svc", "X-Request-Id", "Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Reset", "Retry-After", "Traceparent",
		"Authorization", "Proxy-Authorization", "X-Auth-Token", "Access-Token", "X-Accesstoken", "X-Csrf-Token", "X-Subject-Token", "X-Session-Id",
		"X-Api-Key", "X-Apikey", "Client-Secret", "X-Jwt", "X-Auth", "X-Amz-Security-Token", "X-Initial-Password", "X-Credentials"} {
		if DefaultHeaders(name) || http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s is kept", name)
		}
	}
	for _, name := range []string{"Location", "Etag", "Content-Type", "Content-Encoding", "Link", "Vary", "Cache-Control", "X-Mine", "X-Author", "Content-Disposition", "Accept-Patch"} {
		if !DefaultHeaders(name) {
			t.Errorf("%s is dropped", name)
		}
	}
}

// Outside a handler, the functions for handlers do nothing.
func TestHandlerFunctions_Outside(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if key, ok := KeyFrom(ctx); ok || key != "" {
		t.Errorf("KeyFrom: %q, %v", key, ok)
	}
	if key := DownstreamKey(ctx, "a"); key != "" {
		t.Errorf("DownstreamKey: %q", key)
	}
	NoStore(ctx)
	StoreFor(ctx, time.Second)
}
