package idempotency

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Guards has the guards that a row of a file asks for. Each may be nil. Once or Shared goes around
// Lock; no row has both.
type Guards struct {
	Lock *guard.Guard
	Once *Guard
	// Shared is a *coalesce.Guard, if coalesce.Open has opened the file.
	Shared any
}

// A File is an open file of routes, without a router. The File of each adapter embeds it.
type File struct{ routes *routes.Routes[Guards] }

// Reload loads the file again. If it has a mistake, the error says where, and nothing changes.
func (f File) Reload() error { return f.routes.Reload() }

// Close stops watching the file and closes its plugins. Call it after the server's Shutdown.
func (f File) Close(ctx context.Context) error { return f.routes.Close(ctx) }

// A Table is what an adapter serves requests with: the Guards of each row of an open file.
type Table struct {
	*routes.Routes[Guards]
	// Unrouted answers requests whose route the adapter cannot know, and so neither their row: 500,
	// with keyfuncs.ErrNoRoute or what WithoutRoute says.
	Unrouted *guard.Guard
}

// File returns what the File of the adapter embeds.
func (t *Table) File() File { return File{t.Routes} }

type noRouteKey struct{}

// WithoutRoute returns r with the reason for which its route is unknown, for Table.Unrouted.
func WithoutRoute(r *http.Request, reason error) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), noRouteKey{}, reason))
}

// noRoute is the policy of requests without a known route: to refuse them.
func noRoute(r *http.Request, _ *guard.Policy) error {
	if reason, ok := r.Context().Value(noRouteKey{}).(error); ok {
		return reason
	}
	return keyfuncs.ErrNoRoute
}

// Open opens a file of routes, for adapters without coalesce: their FromFile serves each request with
// the Guards of its row. It refuses a row with coalesce. See routes.Open.
func Open(locks *core.Client, path string, opts routes.Options) (*Table, error) {
	return OpenWith(locks, path, opts, func(row routes.Row) (any, error) {
		if row.Shared != nil {
			return nil, errors.New("the route has coalesce, which the adapter of this program does not know; leave it out")
		}
		return nil, nil
	})
}

// OpenWith is Open for package coalesce, whose function shared builds Guards.Shared of a row.
func OpenWith(locks *core.Client, path string, opts routes.Options, shared func(routes.Row) (any, error)) (*Table, error) {
	unrouted, err := guard.New(locks, guard.Config{
		Policy: noRoute, ErrorHandler: opts.ErrorHandler, Logger: opts.Logger, Observe: opts.Observe,
	})
	if err != nil {
		return nil, err
	}
	rows, err := routes.Open(path, opts, func(row routes.Row) (Guards, error) {
		guards, err := guardsOf(locks, row)
		if err == nil {
			guards.Shared, err = shared(row)
		}
		return guards, err
	})
	if err != nil {
		return nil, err
	}
	return &Table{rows, unrouted}, nil
}

// guardsOf returns the guards of a row.
func guardsOf(locks *core.Client, row routes.Row) (guards Guards, err error) {
	if row.Guard != nil {
		if guards.Lock, err = guard.New(locks, *row.Guard); err != nil {
			return guards, err
		}
	}
	if row.Once != nil {
		guards.Once, err = New(locks, ConfigOf(*row.Once))
	}
	return guards, err
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
