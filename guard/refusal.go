package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/request"
	"github.com/reqlock/reqlock/keyfuncs"
)

// refusal returns the Error of a problem, with the Retry-After of g and the detail of the cause.
func (g *Guard) refusal(problem string, cause error) *Error {
	e := newError(problem, cause)
	if problems[problem].retry {
		e.RetryAfter = g.cfg.RetryAfter
	}
	if detail, ok := keyfuncs.Detail(cause); ok && e.Status == http.StatusBadRequest {
		e.Detail = detail
	}
	return e
}

// lockError turns an error of core, or of a Locker, into an answer.
func (g *Guard) lockError(r *http.Request, p Policy, err error) *Error {
	if own := g.ownAnswer(err); own != nil {
		return own
	}
	end := r.Context().Err()
	// err may match other errors too: the cause of the context.
	cut := end != nil && errors.Is(err, end)
	switch {
	case errors.Is(err, core.ErrNotAcquired) && !cut, errors.Is(err, core.ErrStillHeld) && errors.Is(end, context.DeadlineExceeded):
		switch {
		case p.Limit > 0:
			return g.refusal(ProblemLimit, err)
		case p.WaitTime == 0:
			return g.refusal(ProblemLocked, err)
		}
		return g.refusal(ProblemWaitTimeout, err)
	case errors.Is(err, core.ErrParentLost):
		return g.refusal(ProblemParentLost, err)
	case errors.Is(end, context.Canceled):
		return g.refusal(ProblemClientGone, err)
	case cut:
		return g.refusal(ProblemBackendUnavailable, err)
	case errors.Is(err, core.ErrTooManyWaiters):
		return g.refusal(ProblemQueueFull, err)
	case errors.Is(err, keyfuncs.ErrBusy): // of a Locker that answers with what is recorded
		return g.refusal(ProblemBusy, err)
	case errors.Is(err, core.ErrClosed):
		return g.refusal(ProblemShuttingDown, err)
	case errors.Is(err, core.ErrWrongKind), errors.Is(err, core.ErrUpgrade), errors.Is(err, core.ErrInvalidName), errors.Is(err, core.ErrInvalidOptions), errors.Is(err, core.ErrMisconfigured):
		return g.misconfigured(err)
	default:
		return g.refusal(ProblemBackendUnavailable, err)
	}
}

// remedy says what to change in the program.
func remedy(err error) string {
	if change, ok := keyfuncs.Remedy(err); ok {
		return change
	}
	var known interface{ Remedy() string }
	switch {
	case errors.As(err, &known):
		return known.Remedy()
	case errors.Is(err, keyfuncs.ErrNoRoute):
		return "mount the guard where the route has been matched: around the handler of one route (mux.Handle(pattern, guard(handler))), not around the router"
	case errors.Is(err, core.ErrWrongKind):
		return "the Redis key of this lock holds another type, or a lock of another Mode: give each Mode its own names with Config.Name; a guest needs the Mode of its caller"
	case errors.Is(err, core.ErrUpgrade):
		return "an outer guard of the request, or its caller in another service, holds the lock as a reader, and this one asks for it as a writer: let that one take it as a writer"
	case errors.Is(err, core.ErrInvalidName):
		return "make Config.Name return names that are not empty, at most 64 KiB long, and in a cluster without braces or with a part in braces"
	default:
		return "correct what Config.Key, Config.Policy or Config.Locker returns, as the error says"
	}
}

// wrapErrors is what to change in a key function whose error says nothing about the answer.
const wrapErrors = "wrap keyfuncs.ErrMissing or keyfuncs.ErrInvalid if the request is at fault, or return a *guard.Error with another answer, such as 503"

// keyError turns the error of a key function or a policy into an answer. unread is why the body
// could not be read; nil: it could.
func (g *Guard) keyError(r *http.Request, err, unread error) error {
	if own := g.ownAnswer(err); own != nil {
		return own
	}
	var tooLarge *http.MaxBytesError
	end := r.Context().Err()
	switch {
	case errors.Is(end, context.Canceled):
		return g.refusal(ProblemClientGone, err)
	case end != nil && errors.Is(err, end): // a deadline, whose client waits for the answer
		return g.refusal(ProblemBackendUnavailable, err)
	case errors.As(err, &tooLarge):
		return g.refusal(ProblemBodyTooLarge, err)
	case errors.Is(err, keyfuncs.ErrBusy):
		return g.refusal(ProblemBusy, err)
	case unread != nil && errors.Is(err, unread):
		return g.refusal(ProblemBodyUnreadable, err)
	case errors.Is(err, keyfuncs.ErrNoRoute):
		return g.misconfigured(err)
	case errors.Is(err, keyfuncs.ErrMissing):
		return g.refusal(ProblemKeyMissing, err)
	case errors.Is(err, keyfuncs.ErrInvalid):
		return g.refusal(ProblemKeyInvalid, err)
	case end != nil: // what the deadline has ended may say so in its own words
		return g.refusal(ProblemBackendUnavailable, err)
	default:
		if n, ok := g.lines.Count("key function", 1); ok {
			g.cfg.Logger.Warn("reqlock: guard: a key function failed, the request gets 400", "error", err, "change", wrapErrors, "requests", n)
		}
		return g.refusal(ProblemKeyInvalid, err)
	}
}

func (g *Guard) bodyError(r *http.Request, err error) error {
	var tooLarge *http.MaxBytesError
	end := r.Context().Err()
	switch {
	case errors.Is(err, request.ErrBodyTooLarge):
		return g.refusal(ProblemBodyTooLarge, err)
	case errors.Is(err, request.ErrBusy):
		return g.refusal(ProblemBusy, err)
	case errors.Is(end, context.Canceled):
		return g.refusal(ProblemClientGone, err)
	case errors.As(err, &tooLarge):
		return g.refusal(ProblemBodyTooLarge, err)
	case end != nil: // a deadline, whose client waits for the answer
		return g.refusal(ProblemBackendUnavailable, err)
	default:
		return g.refusal(ProblemBodyUnreadable, err)
	}
}

// ownAnswer returns the *Error in err; nil: err has none.
func (g *Guard) ownAnswer(err error) *Error {
	var own *Error
	if !errors.As(err, &own) || own.canBeSent() {
		return own
	}
	return g.misconfigured(fmt.Errorf("reqlock: guard: an *Error needs a Status from 200 to 999: %w", err))
}

// misconfigured logs the mistake, which clients must not see.
func (g *Guard) misconfigured(err error) *Error {
	change := remedy(err)
	if n, ok := g.lines.Count(change, 1); ok {
		g.cfg.Logger.Error("reqlock: guard is misconfigured, requests get 500", "error", err, "change", change, "requests", n)
	}
	return g.refusal(ProblemMisconfigured, err)
}
