package idempotency

import (
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
)

// Guards has the guards that a row of a file asks for. Each may be nil. Once goes around Lock.
type Guards struct {
	Lock *guard.Guard
	Once *Guard
}

// Open opens a file of routes, for adapters: their FromFile serves each request with the Guards of
// its row. See routes.Open.
func Open(locks *core.Client, path string, opts routes.Options) (*routes.Routes[Guards], error) {
	return routes.Open(path, opts, func(row routes.Row) (guards Guards, err error) {
		if row.Guard != nil {
			if guards.Lock, err = guard.New(locks, *row.Guard); err != nil {
				return guards, err
			}
		}
		if row.Once != nil {
			guards.Once, err = New(locks, ConfigOf(*row.Once))
		}
		return guards, err
	})
}

// ConfigOf returns the Config of a row of a file, and of other forms of configuration with the same
// fields.
func ConfigOf(once routes.Once) Config {
	cfg := Config{
		Scope:           once.ScopeOf,
		Route:           once.Route,
		Header:          once.Header,
		Optional:        once.Optional,
		Strict:          once.Strict,
		KeyUUID:         once.KeyUUID,
		Methods:         once.Methods,
		WaitTime:        time.Duration(once.Wait),
		LeaseTime:       time.Duration(once.Lease),
		MaxHold:         time.Duration(once.MaxHold),
		MaxWaiters:      once.MaxWaiters,
		TTL:             time.Duration(once.TTL),
		ErrorTTL:        time.Duration(once.ErrorTTL),
		MaxKeys:         once.MaxKeys,
		MaxRequestBody:  once.MaxRequestBody,
		MaxResponseBody: once.MaxResponseBody,
		FailOpen:        once.FailOpen,
		ErrorHandler:    once.ErrorHandler,
		Logger:          once.Logger,
		Observe:         once.Observe,
	}
	if once.ScopeOf == nil {
		cfg.Scope = ScopeGlobal
	}
	if once.OnUnknown == "refuse" {
		cfg.OnUnknown = OutcomeRefuse
	}
	return cfg
}
