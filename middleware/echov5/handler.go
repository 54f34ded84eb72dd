// Code generated from middleware/echo by make echov5 WRITE=1. DO NOT EDIT.

package echolock

import (
	"context"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
)

// This file has what handlers call, so that they need no other import than that of their adapter.
// It is the same in every adapter.

// LeaseFrom returns the lease that the innermost guard holds for the request of ctx; false: there is
// none. It is guard.LeaseFrom.
func LeaseFrom(ctx context.Context) (*core.Lease, bool) { return guard.LeaseFrom(ctx) }

// Release releases the lock of the innermost guard before the handler returns, such as before a
// long stream that needs no protection. It is guard.Release.
func Release(ctx context.Context) error { return guard.Release(ctx) }

// Detach takes the lock over from the innermost guard: it outlives the request, and the caller
// releases it. false: there is no lock. It is guard.Detach.
func Detach(ctx context.Context) (*core.Lease, bool) { return guard.Detach(ctx) }

// KeyFrom returns the idempotency key of the request of ctx; false: it has none. It is
// idempotency.KeyFrom.
func KeyFrom(ctx context.Context) (string, bool) { return idempotency.KeyFrom(ctx) }

// DownstreamKey returns an idempotency key for a request to another service, the same whenever the
// handler runs again; "": the request has no key. It is idempotency.DownstreamKey.
func DownstreamKey(ctx context.Context, parts ...string) string {
	return idempotency.DownstreamKey(ctx, parts...)
}

// Outcome returns the report in which a handler with Idempotent says whether its work is done. It is
// idempotency.Outcome.
func Outcome(ctx context.Context) idempotency.Report { return idempotency.Outcome(ctx) }

// NoStore prevents the result of a handler with Idempotent from being stored: a repeat runs again.
// It is idempotency.NoStore.
func NoStore(ctx context.Context) { idempotency.NoStore(ctx) }

// StoreFor keeps the result of a handler with Idempotent for d, in place of Config.TTL or ErrorTTL.
// It is idempotency.StoreFor.
func StoreFor(ctx context.Context, d time.Duration) { idempotency.StoreFor(ctx, d) }
