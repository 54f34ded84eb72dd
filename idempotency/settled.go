package idempotency

import (
	"context"

	"github.com/reqlock/reqlock/core"
)

// A settled lock is never acquired: the error answers the request.
type settled struct {
	name string
	err  error
}

func (s *settled) Name() string { return s.name }

func (s *settled) Acquire(context.Context, core.AcquireOptions) (*core.Lease, error) {
	return nil, s.err
}
