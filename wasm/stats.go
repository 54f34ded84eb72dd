package wasm

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// An Outcome is how a call of a plugin ended. String returns a short name for metrics.
type Outcome uint8

// The outcomes. Each call has one.
const (
	OutcomeLocked    Outcome = iota // The guest set keys.
	OutcomeSkipped                  // The guest lets the request run without a lock.
	OutcomeDenied                   // The guest refused the request.
	OutcomeTimeout                  // ErrTimeout
	OutcomeTrap                     // ErrTrap
	OutcomeInvalid                  // ErrBadGuest
	OutcomeNoKey                    // ErrNoKey
	OutcomeBody                     // the guest needs a body that cannot be read, or is too large
	OutcomeBusy                     // ErrBusy
	OutcomeSuspended                // ErrSuspended
	OutcomeGone                     // the client left before an instance was free
	OutcomeClosed                   // ErrClosed
	outcomes
)

var outcomeNames = [outcomes]string{
	"locked", "skipped", "denied", "timeout", "trap", "invalid", "no_key", "body", "busy", "suspended", "gone", "closed",
}

// String returns the name of the outcome, such as "locked".
func (o Outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// outcomeOf classifies the result of a call.
func outcomeOf(policy *guard.Policy, err error) Outcome {
	if err == nil {
		if policy.Skip {
			return OutcomeSkipped
		}
		return OutcomeLocked
	}
	for _, known := range []struct {
		err     error
		outcome Outcome
	}{
		{errDenied, OutcomeDenied},
		{ErrTimeout, OutcomeTimeout},
		{ErrTrap, OutcomeTrap},
		{ErrBadGuest, OutcomeInvalid},
		{ErrNoKey, OutcomeNoKey},
		{ErrSuspended, OutcomeSuspended},
		{ErrClosed, OutcomeClosed},
		{context.Canceled, OutcomeGone},
		{ErrBusy, OutcomeBusy},
	} {
		if errors.Is(err, known.err) {
			return known.outcome
		}
	}
	return OutcomeBody
}

// fault reports whether the outcome is the fault of the plugin: not of the client, nor of the load.
func (o Outcome) fault() bool {
	return o == OutcomeTimeout || o == OutcomeTrap || o == OutcomeInvalid || o == OutcomeNoKey || o == OutcomeSuspended
}

// Stats are the counts of a plugin, those of its earlier versions included.
type Stats struct {
	// Instances counts all that exist, in a call or idle.
	Instances int
	// Running counts calls that have an instance.
	Running int
	// Queued counts calls that wait for an instance.
	Queued int
	// Breaker is the state of the current version.
	Breaker BreakerState

	// Calls counts calls that have ended. Outcomes that never occurred are missing.
	Calls map[Outcome]uint64
	// FailedOpen counts calls that Config.FailOpen let through.
	FailedOpen uint64
	// GuestTime is what calls spent in instances, with the start of new ones.
	GuestTime time.Duration

	// SharedEntries counts entries of the shared memory. Expired ones count until their room is
	// needed.
	SharedEntries int
	// SharedBytes is what these use.
	SharedBytes int64

	// Reloads counts new versions that were loaded.
	Reloads uint64
	// FailedReloads counts new versions that were refused.
	FailedReloads uint64
}

// Stats returns the current counts.
func (p *Plugin) Stats() Stats {
	s := Stats{
		Instances:     int(p.counts.instances.Load()),
		Running:       p.queue.running(),
		Queued:        p.queue.waiting(),
		Calls:         make(map[Outcome]uint64),
		FailedOpen:    p.counts.failedOpen.Load(),
		GuestTime:     time.Duration(p.counts.guestTime.Load()),
		Reloads:       p.counts.reloads.Load(),
		FailedReloads: p.counts.failedReloads.Load(),
	}
	s.SharedEntries, s.SharedBytes = p.shared.size()
	p.mu.Lock()
	s.Breaker = p.current.breaker.current()
	p.mu.Unlock()
	for o := range outcomes {
		if n := p.counts.calls[o].Load(); n > 0 {
			s.Calls[o] = n
		}
	}
	return s
}

// Calls returns the number of calls that have ended, by the name of their outcome, those that never
// occurred included. otelreqlock and promreqlock read it.
func (p *Plugin) Calls() map[string]uint64 {
	calls := make(map[string]uint64, outcomes)
	for o := range outcomes {
		calls[o.String()] = p.counts.calls[o].Load()
	}
	return calls
}

// counts are what Stats reads. Programs of one plugin share them.
type counts struct {
	instances              atomic.Int64
	calls                  [outcomes]atomic.Uint64
	failedOpen             atomic.Uint64
	guestTime              atomic.Int64
	reloads, failedReloads atomic.Uint64
}
