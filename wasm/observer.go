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
	// Plugin is the plugin's name in logs.
	Plugin  string
	Outcome Outcome
	// FailedOpen is true if Config.FailOpen lets the request run without a lock.
	FailedOpen bool
	// Queued is how long the request waited for an instance.
	Queued time.Duration
	// Ran is how long the request had an instance, with the start of a new one.
	Ran time.Duration
	// Fields were set by the guest, for logs.
	Fields []slog.Attr
	// Err is nil after OutcomeLocked and OutcomeSkipped.
	Err error
}

// A ReloadEvent describes a new version of a plugin's file.
type ReloadEvent struct {
	// Plugin is the plugin's name in logs.
	Plugin string
	// Version is "sha256:" and the first 12 digits of the file's checksum.
	Version string
	// Took is the time to compile and start it.
	Took time.Duration
	// Err is why the version was refused. nil: it was loaded.
	Err error
}

// A BreakerEvent describes a change of a plugin's breaker.
type BreakerEvent struct {
	// Plugin is the plugin's name in logs.
	Plugin string
	State  BreakerState
	// Pause is the time until the plugin is tried again. Only BreakerOpen has one.
	Pause time.Duration
	// Err is the last failure. Only BreakerOpen has one.
	Err error
}
