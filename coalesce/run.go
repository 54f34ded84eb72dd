package coalesce

import (
	"context"
	"time"

	"github.com/reqlock/reqlock/core"
)

// A run is that of one caller, for all that wait.
type run struct {
	lead  *lead
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

// end gives the others of this process the record, and releases the lock with it for those of other
// processes. If it cannot be stored, the next of them runs, and an Observer of the client sees the
// error. A run whose lock is lost has nothing for others.
func (r *run) end(ctx context.Context) {
	defer r.lead.cede()
	if !r.settled {
		r.fail(panicked)
	}
	if r.record == nil {
		_ = r.lease.Release(ctx)
		return
	}
	if r.lease.Err() == nil {
		r.lead.land(&outcome{record: r.record})
	}
	_ = r.lease.ReleaseWith(ctx, r.record, r.ttl)
}
