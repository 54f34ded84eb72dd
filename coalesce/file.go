package coalesce

import (
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/idempotency"
)

// Open opens a file of routes, for adapters: their FromFile serves each request with the guards of its
// row. idempotency.Guards.Shared is the *Guard of a row with coalesce, and nil for others. See
// routes.Open.
func Open(locks *core.Client, path string, opts routes.Options) (*idempotency.Table, error) {
	return idempotency.OpenWith(locks, path, opts, func(row routes.Row) (any, error) {
		if row.Shared == nil {
			return nil, nil
		}
		return New(locks, configOf(*row.Shared))
	})
}

// configOf returns the Config of a row.
func configOf(shared routes.Shared) Config {
	cfg := Config{
		Key:          shared.KeyOf,
		Policy:       shared.Policy,
		User:         shared.UserOf,
		Vary:         shared.Vary,
		Unsafe:       shared.Unsafe,
		WaitTime:     time.Duration(shared.Wait),
		LeaseTime:    time.Duration(shared.Lease),
		MaxWaiters:   shared.MaxWaiters,
		Keep:         time.Duration(shared.Keep),
		ErrorFor:     time.Duration(shared.ErrorFor),
		Stale:        time.Duration(shared.Stale),
		MaxAnswer:    shared.MaxAnswer,
		Limit:        shared.Limit,
		Unmarked:     shared.Unmarked,
		FailOpen:     shared.FailOpen,
		ErrorHandler: shared.ErrorHandler,
		Logger:       shared.Logger,
		Observe:      shared.Observe,
	}
	if shared.Coalesce.User == routes.UserEveryone {
		cfg.User = Everyone
	}
	return cfg
}
