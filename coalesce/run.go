package coalesce

import (
	"context"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A run is that of one caller, for all that wait.
type run struct {
	lease *core.OnceLease
	opts  Options

	// settled is true when the work has returned. Then record is what the others get, for ttl; without
	// one, the next of them runs.
	settled bool
	record  []byte
	ttl     time.Duration
}

// settle decides what the others get. Its error says why they get nothing.
func (r *run) settle(result any, err error) error {
	r.settled = true
	if err != nil {
		r.fail(err.Error())
		return nil
	}
	record, err := resultRecord(r.opts.Codec, result)
	r.record, r.ttl = record, r.opts.Keep
	return err
}

// fail gives the others an error.
func (r *run) fail(text string) {
	if r.opts.ErrorFor > 0 {
		r.record, r.ttl = errorRecord(text), r.opts.ErrorFor
	}
}

// end releases the lock. If the record cannot be stored, the next caller runs, and an Observer of the
// client sees the error.
func (r *run) end(ctx context.Context) {
	if !r.settled {
		r.fail(panicked)
	}
	if r.record == nil {
		_ = r.lease.Release(ctx)
	} else {
		_ = r.lease.ReleaseWith(ctx, r.record, r.ttl)
	}
}
