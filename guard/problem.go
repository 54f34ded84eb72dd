package guard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
)

// An Error is a refusal that carries its own answer. Guards pass one to Config.ErrorHandler; a key function, a policy or a
// lock of Config.Locker may return one, wrapped or not, and it is answered as it is.
type Error struct {
	Status     int           // of the answer
	Type       string        // RFC 9457 problem type, a URI
	Title      string        // the same for all problems of the type
	Detail     string        // what this client can do; never holds the key
	RetryAfter time.Duration // 0: no Retry-After
	Err        error         // the cause, for logs; not sent
}

// Error names the problem and its cause.
func (e *Error) Error() string {
	if e == nil {
		return "reqlock: guard: a nil *Error"
	}
	text := "reqlock: guard: " + e.Title
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause. A nil *Error, which easily becomes an error by mistake, has none.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// canBeSent says whether net/http takes the status for that of an answer.
func (e *Error) canBeSent() bool { return e != nil && e.Status >= 200 && e.Status <= 999 }

// The problem types, after "urn:reqlock:problem:".
const (
	locked             = "locked"
	waitTimeout        = "wait-timeout"
	queueFull          = "queue-full"
	backendUnavailable = "backend-unavailable"
	shuttingDown       = "shutting-down"
	keyMissing         = "key-missing"
	keyInvalid         = "key-invalid"
	bodyUnreadable     = "body-unreadable"
	bodyTooLarge       = "body-too-large"
	busy               = "busy"
	misconfigured      = "misconfigured"
	clientGone         = "client-closed-request"
)

// statusClientGone is what access logs say when a client has left before it got its answer.
const statusClientGone = 499

var problems = map[string]struct {
	status        int
	title, detail string
	retry         bool // carries Retry-After
}{
	locked:             {http.StatusConflict, "Another request is being processed", "A request that excludes this one is being processed. Try again later.", true},
	waitTimeout:        {http.StatusConflict, "Another request is still being processed", "This request has waited for another one that excludes it, and that one is still being processed. Try again later.", true},
	queueFull:          {http.StatusServiceUnavailable, "Too many requests are waiting", "Too many requests are waiting for the same resource. Try again later.", true},
	backendUnavailable: {http.StatusServiceUnavailable, "Locking is unavailable", "The service cannot make sure at the moment that this request runs alone. Nothing was done. Try again later.", true},
	shuttingDown:       {http.StatusServiceUnavailable, "The service is shutting down", "The service takes no more requests here. Nothing was done. Try again.", true},
	keyMissing:         {http.StatusBadRequest, "The request lacks what it is told apart by", "A part of the request that is required here is missing or empty.", false},
	keyInvalid:         {http.StatusBadRequest, "The request cannot be told apart from others", "A part of the request that is required here is present but cannot be used.", false},
	bodyUnreadable:     {http.StatusBadRequest, "The body cannot be read", "The body of the request could not be read to its end.", false},
	bodyTooLarge:       {http.StatusRequestEntityTooLarge, "The body is too large", "The body of the request is larger than is taken here.", false},
	busy:               {http.StatusServiceUnavailable, "Too many request bodies are in memory", "The bodies of other requests leave no room for this one. Nothing was done. Try again later.", true},
	misconfigured:      {http.StatusInternalServerError, "The service is misconfigured", "This is not the client's fault. The operators find the reason in their log.", false},
	clientGone:         {statusClientGone, "The client closed the request", "The request ended before it could be processed. Nothing was done.", false},
}

func problemType(problem string) string { return "urn:reqlock:problem:" + problem }

func newError(problem string, cause error) *Error {
	p := problems[problem]
	return &Error{Status: p.status, Type: problemType(problem), Title: p.title, Detail: p.detail, Err: cause}
}

// refusal is a problem with what this guard adds to it.
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
func (g *Guard) lockError(r *http.Request, wait time.Duration, err error) *Error {
	if own := g.ownAnswer(err); own != nil {
		return own
	}
	end := r.Context().Err()
	cut := end != nil && errors.Is(err, end) // what else err matches may be why the context was ended
	switch {
	case errors.Is(err, core.ErrNotAcquired) && !cut, errors.Is(err, core.ErrStillHeld) && errors.Is(end, context.DeadlineExceeded):
		if wait == 0 {
			return g.refusal(locked, err)
		}
		return g.refusal(waitTimeout, err)
	case errors.Is(end, context.Canceled):
		return g.refusal(clientGone, err)
	case cut:
		return g.refusal(backendUnavailable, err)
	case errors.Is(err, core.ErrTooManyWaiters):
		return g.refusal(queueFull, err)
	case errors.Is(err, core.ErrClosed):
		return g.refusal(shuttingDown, err)
	case errors.Is(err, core.ErrWrongKind), errors.Is(err, core.ErrUpgrade), errors.Is(err, core.ErrInvalidName), errors.Is(err, core.ErrInvalidOptions):
		return g.misconfigured(err)
	default:
		return g.refusal(backendUnavailable, err)
	}
}

// remedy says what to change.
func remedy(err error) string {
	switch {
	case errors.Is(err, keyfuncs.ErrNoRoute):
		return "mount the guard where the route has been matched: around the handler of one route (mux.Handle(pattern, guard(handler))), not around the router"
	case errors.Is(err, core.ErrWrongKind):
		return "the key of this lock holds something else in Redis, or a lock of another Mode: give locks names of their own with Config.Name"
	case errors.Is(err, core.ErrUpgrade):
		return "the request has the lock as a reader, by a guard further out, and asks for it as a writer: have the outer guard take it as a writer"
	case errors.Is(err, core.ErrInvalidName):
		return "have Config.Name make names that are not empty, of 64 KiB at most, and in a cluster without braces or with a part of it in braces"
	default:
		return "have Config.Key, Config.Policy and Config.Locker return only what can work"
	}
}

// WriteProblem answers with application/problem+json, RFC 9457, what an *Error says; any other error is answered 500. It is the
// default of Config.ErrorHandler. The body never holds the key.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	var e *Error
	if !errors.As(err, &e) || !e.canBeSent() {
		e = newError(misconfigured, err)
	}
	body, err := json.Marshal(struct {
		Type   string `json:"type,omitempty"`
		Title  string `json:"title,omitempty"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{e.Type, e.Title, e.Status, e.Detail})
	if err != nil { // strings and a number: it cannot fail
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(wholeSeconds(e.RetryAfter)))
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // a client that is gone is past telling
}

// wholeSeconds rounds up: a client that comes back too early has come for nothing.
func wholeSeconds(d time.Duration) int {
	seconds := int(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}
