package wasm

import (
	"context"
	"log/slog"
	"time"
)

// An Observer receives the events of a plugin. Every field may be nil. A callback runs on the
// goroutine of its event, with no mutex held. It should return soon, and must not call
// Plugin.Close, which waits for it.
type Observer struct {
	// Called: a call has ended. ctx is the context of its request.
	Called func(ctx context.Context, e CallEvent)
	// Reloaded: a new version was loaded or refused.
	Reloaded func(e ReloadEvent)
	// Breaker: the plugin was suspended, is tried again, or works again.
	Breaker func(e BreakerEvent)
}

// A CallEvent describes a call that has ended.
type CallEvent struct {
	Plugin     string // its name in logs
	Outcome    Outcome
	FailedOpen bool          // Config.FailOpen lets the request run without a lock
	Queued     time.Duration // that it waited for an instance
	Ran        time.Duration // that it had an instance, the start of a new one included
	Fields     []slog.Attr   // that the guest set for logs
	Err        error         // nil after OutcomeLocked and OutcomeSkipped
}

// A ReloadEvent describes a new version of a plugin's file.
type ReloadEvent struct {
	Plugin  string        // its name in logs
	Version string        // "sha256:" and the first 12 digits of the file's checksum
	Took    time.Duration // to compile and start it
	Err     error         // why it was refused; nil: it was loaded
}

// A BreakerEvent describes a change of a plugin's breaker.
type BreakerEvent struct {
	Plugin string // its name in logs
	State  BreakerState
	Pause  time.Duration // until it is tried again; only with BreakerOpen
	Err    error         // the last failure; only with BreakerOpen
}
