package telemetry

import (
	"errors"
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/coalesce"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
)

// The values of Problem, besides the problem types of guard and idempotency without their prefix.
const (
	NoProblem     = "none"           // the handler ran under its lock to the end
	FailedOpen    = "failed-open"    // the handler ran without a lock
	MaxHold       = "max-hold"       // the handler ran for longer than MaxHold
	LockLost      = "lock-lost"      // the lock was lost while the handler ran
	ReleaseFailed = "release-failed" // the release could not be confirmed
	OtherProblem  = "other"          // an answer of the application or of a plugin
)

// problemPrefix is that of reqlock's problem types.
const problemPrefix = "urn:reqlock:problem:"

// problemTypes are the problem types of guard and idempotency, without their prefix. All others are
// OtherProblem: an application or a plugin may make any number of them, also with the prefix.
var problemTypes = map[string]bool{
	"locked":                true,
	"wait-timeout":          true,
	"limit":                 true,
	"parent-lost":           true,
	"queue-full":            true,
	"backend-unavailable":   true,
	"shutting-down":         true,
	"key-missing":           true,
	"key-invalid":           true,
	"body-unreadable":       true,
	"body-too-large":        true,
	"busy":                  true,
	"misconfigured":         true,
	"plugin-failed":         true,
	"plugin-busy":           true,
	"plugin-denied":         true,
	"client-closed-request": true,
	"key-reused":            true,
	"not-replayable":        true,
	"outcome-unknown":       true,
	"run-failed":            true,
	"key-quota":             true,
	"record-unreadable":     true,
	"record-unwritable":     true,
}

// RequestProblem returns the problem of a request in a guard.
func RequestProblem(o guard.Outcome) string {
	var refusal *guard.Error
	switch {
	case o.Err == nil:
		return NoProblem
	case o.FailedOpen:
		return FailedOpen
	case errors.Is(o.Err, guard.ErrMaxHold):
		return MaxHold
	case o.Ran && (errors.Is(o.Err, core.ErrLockLost) || errors.Is(o.Err, core.ErrClosed)):
		return LockLost
	case o.Ran:
		return ReleaseFailed
	case errors.As(o.Err, &refusal):
		if name, ours := strings.CutPrefix(refusal.Type, problemPrefix); ours && problemTypes[name] {
			return name
		}
	}
	return OtherProblem
}

// The values of Outcome in IdempotencyOutcomes and CoalesceOutcomes.
const (
	Ran            = "ran"
	Replayed       = "replayed"
	NotStored      = "not_stored" // the handler ran, but its result is not stored
	Shared         = "shared"
	NotShared      = "not_shared" // the handler ran, and its answer was for this request alone
	RefusedRequest = "refused"    // see Problem
)

// Idempotency returns the outcome of a request with an idempotency key, and its problem.
func Idempotency(o guard.Outcome) (outcome, problem string) {
	switch {
	case errors.Is(o.Err, idempotency.ErrReplayed):
		return Replayed, NoProblem
	case errors.Is(o.Err, idempotency.ErrNotStored):
		return NotStored, RequestProblem(o)
	case o.Ran:
		return Ran, RequestProblem(o)
	}
	return RefusedRequest, RequestProblem(o)
}

// Coalesced returns the outcome of a request in a coalesce.Guard, and its problem. That of an answer
// which is not shared is the reason, one of a few.
func Coalesced(o guard.Outcome) (outcome, problem string) {
	var notShared *coalesce.NotShared
	switch {
	case errors.Is(o.Err, coalesce.ErrShared):
		return Shared, NoProblem
	case errors.As(o.Err, &notShared):
		return NotShared, notShared.Reason
	case o.Ran:
		return Ran, RequestProblem(o)
	}
	return RefusedRequest, RequestProblem(o)
}

// RouteOf returns the path of the pattern that the request matched; "": none. Its method is another
// attribute in OpenTelemetry's conventions, and a pattern for one method rarely has another's path.
func RouteOf(r *http.Request) string {
	_, path, spaced := strings.Cut(r.Pattern, " ")
	if !spaced {
		return r.Pattern
	}
	return strings.TrimLeft(path, " \t")
}
