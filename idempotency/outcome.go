package idempotency

import (
	"context"
	"sync/atomic"
)

// A Report is what a handler says about its own work. It decides whether a repeat runs, in place of
// the status of the answer. The last word counts. A Report is safe for concurrent use.
type Report struct{ said *atomic.Int32 }

// A word is what a handler has said. Zero: nothing.
type word int32

const (
	saidNothingDone word = iota + 1
	saidDone
)

// Outcome returns the report of the run that ctx belongs to. Outside an idempotent handler, what is
// said has no effect.
//
//	if errors.Is(err, provider.ErrUnavailable) {
//		idempotency.Outcome(r.Context()).NothingDone() // it was never asked
//	}
func Outcome(ctx context.Context) Report {
	if a := attemptFrom(ctx); a != nil {
		return Report{&a.said}
	}
	return Report{new(atomic.Int32)}
}

// NothingDone says that a repeat may run: this run has changed nothing, or undone what it did. The
// result is not stored, and the key is free when the handler returns, for another request too unless
// an earlier run with the key has ended otherwise. It does not count if the handler panics, calls
// runtime.Goexit, or loses its lock.
func (r Report) NothingDone() { r.said.Store(int32(saidNothingDone)) }

// Done says that a repeat must not run. The answer is stored whatever its status is. If there is none
// to replay, repeats get 409 not-replayable.
func (r Report) Done() { r.said.Store(int32(saidDone)) }

// An ending is what becomes of a key when its run has ended.
type ending int

const (
	endAnswered   ending = iota // repeats get the answer
	endUnrecorded               // repeats get 409 not-replayable
	endUnknown                  // repeats run with OutcomeRerun, and get 409 outcome-unknown with OutcomeRefuse
	endFree                     // repeats run
	endUndone                   // any request with the key runs, unless an earlier run has bound the key
)

// A run is how a handler ended.
type run struct {
	said        word
	returned    bool // It did not panic or call runtime.Goexit.
	interrupted bool // Its context ended before it did: it lost its lock, or ran out of time.
	answered    bool // It has a status, of its own or an implied one.
	failed      bool // The status is 400 or more.
	stored      bool // Config.Store keeps the status.
}

// ending decides what becomes of the key. Only a handler that ends in order, while its context
// lives, can free it: by what it says, by an answer that is not stored, such as a 5xx, or by an
// error. It knows what it did, and says Done if that must not be done again. A handler that panics
// or is interrupted knows nothing, unless it has an answer below 400: then it has done its work. A
// higher one may only say that its context has ended.
func (r run) ending() ending {
	switch {
	case r.said == saidDone && r.returned && r.answered:
		return endAnswered
	case r.said == saidDone:
		return endUnrecorded
	case !r.returned:
		return endUnknown
	case r.said != saidNothingDone && r.answered && r.stored && !(r.interrupted && r.failed):
		return endAnswered
	case r.interrupted:
		return endUnknown
	case r.said == saidNothingDone:
		return endUndone
	}
	return endFree
}
