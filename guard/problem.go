package guard

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// An Error is a refusal with its answer. Guards pass one to Config.ErrorHandler. A key function, a
// policy or a lock of Config.Locker may return one, wrapped or not: the guard sends that answer.
type Error struct {
	Status int
	// Type is the problem type of RFC 9457, a URI. All problems of a type have its Title.
	Type, Title string
	// Detail says what this client can do. It never has the key.
	Detail string
	// RetryAfter becomes the header Retry-After. 0: there is none.
	RetryAfter time.Duration
	// Reason becomes the header Reqlock-Reason, a short text for programs. "": there is none.
	Reason string
	// Err is the cause. It is for logs, and the client does not get it.
	Err error
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

// canBeSent reports whether net/http accepts the status for a final answer.
func (e *Error) canBeSent() bool { return e != nil && e.Status >= 200 && e.Status <= 999 }

// The problem types of the guard's refusals: Error.Type, and the type in the answer. The status of
// each is in the table of the package documentation.
const (
	// Another request holds the lock, and WaitTime is 0.
	ProblemLocked = "urn:reqlock:problem:locked"
	// Another request held the lock until WaitTime or a deadline was over.
	ProblemWaitTimeout = "urn:reqlock:problem:wait-timeout"
	// The caller's hold, which the request was to enter by Config.Delegates, is over.
	ProblemParentLost = "urn:reqlock:problem:parent-lost"
	// Limit other requests were inside, until WaitTime or a deadline was over.
	ProblemLimit = "urn:reqlock:problem:limit"
	// MaxWaiters requests are waiting already.
	ProblemQueueFull = "urn:reqlock:problem:queue-full"
	// Redis is down, slow or refuses.
	ProblemBackendUnavailable = "urn:reqlock:problem:backend-unavailable"
	// The client of the locks is closing.
	ProblemShuttingDown = "urn:reqlock:problem:shutting-down"
	// keyfuncs.ErrMissing, or an empty key.
	ProblemKeyMissing = "urn:reqlock:problem:key-missing"
	// keyfuncs.ErrInvalid, or an error that does not come from keyfuncs.
	ProblemKeyInvalid = "urn:reqlock:problem:key-invalid"
	// The connection broke while the body was read.
	ProblemBodyUnreadable = "urn:reqlock:problem:body-unreadable"
	// The body exceeds BufferBody, or the limit of a body key.
	ProblemBodyTooLarge = "urn:reqlock:problem:body-too-large"
	// The bodies of other requests and their recorded answers leave no room; see SetBodyBudget.
	ProblemBusy = "urn:reqlock:problem:busy"
	// The program has a mistake; the log says what to change.
	ProblemMisconfigured = "urn:reqlock:problem:misconfigured"
	// A WebAssembly plugin crashed, took too long or decided nothing, or is suspended because it
	// keeps doing so.
	ProblemPluginFailed = "urn:reqlock:problem:plugin-failed"
	// Too many requests are waiting for an instance of a WebAssembly plugin.
	ProblemPluginBusy = "urn:reqlock:problem:plugin-busy"
	// A WebAssembly plugin refused the request, with its own status.
	ProblemPluginDenied = "urn:reqlock:problem:plugin-denied"
	// The client left. Only ErrorHandler and Observe see it.
	ProblemClientGone = "urn:reqlock:problem:client-closed-request"
)

// statusClientGone is the status in access logs for a client that left before the answer.
const statusClientGone = 499

var problems = map[string]struct {
	status        int
	title, detail string
	retry         bool // The answer has Retry-After.
}{
	ProblemLocked:             {http.StatusConflict, "Another request is in progress", "Another request for the same resource is in progress. Try again later.", true},
	ProblemWaitTimeout:        {http.StatusConflict, "Timed out waiting for another request", "Another request for the same resource is still in progress. This request waited for it and was not processed. Try again later.", true},
	ProblemParentLost:         {http.StatusConflict, "The caller's lock is over", "The caller has no longer the lock under which it sent this request. The request was not processed.", false},
	ProblemLimit:              {http.StatusTooManyRequests, "Too many requests in progress", "As many other requests as may run at a time are in progress. This request was not processed. Try again later.", true},
	ProblemQueueFull:          {http.StatusServiceUnavailable, "Too many requests waiting", "Too many requests are waiting already. Try again later.", true},
	ProblemBackendUnavailable: {http.StatusServiceUnavailable, "Lock service unavailable", "The server cannot lock the resource at the moment. The request was not processed. Try again later.", true},
	ProblemShuttingDown:       {http.StatusServiceUnavailable, "Server shutting down", "This server is shutting down. The request was not processed. Try again.", true},
	ProblemKeyMissing:         {http.StatusBadRequest, "Lock key missing", "A required part of the request is missing or empty.", false},
	ProblemKeyInvalid:         {http.StatusBadRequest, "Lock key invalid", "A required part of the request is present but invalid.", false},
	ProblemBodyUnreadable:     {http.StatusBadRequest, "Request body unreadable", "The request body could not be read to its end.", false},
	ProblemBodyTooLarge:       {http.StatusRequestEntityTooLarge, "Request body too large", "The request body is larger than the server accepts here.", false},
	ProblemBusy:               {http.StatusServiceUnavailable, "Too many bodies in memory", "Other requests leave no room in memory for the body of this one. The request was not processed. Try again later.", true},
	ProblemMisconfigured:      {http.StatusInternalServerError, "Server misconfigured", "The server is not set up correctly. Its log has the reason.", false},
	ProblemClientGone:         {statusClientGone, "Client closed request", "The client closed the request before it was processed.", false},
}

func newError(problem string, cause error) *Error {
	p := problems[problem]
	return &Error{Status: p.status, Type: problem, Title: p.title, Detail: p.detail, Err: cause}
}

// WriteProblem answers with the application/problem+json (RFC 9457) of an *Error; any other error
// gets 500. It is the default of Config.ErrorHandler. The body never holds the key.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	var e *Error
	if !errors.As(err, &e) || !e.canBeSent() {
		e = newError(ProblemMisconfigured, err)
	}
	body, err := json.Marshal(struct {
		Type   string `json:"type,omitempty"`
		Title  string `json:"title,omitempty"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{e.Type, e.Title, e.Status, e.Detail})
	if err != nil { // never, for strings and a number
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if h.Get("Content-Encoding") == "" { // otherwise middleware further out encodes what is written
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(wholeSeconds(e.RetryAfter), 10))
	}
	if e.Reason != "" {
		h.Set("Reqlock-Reason", e.Reason)
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // the client may be gone
}

// wholeSeconds rounds up: a client that retries too early is refused again.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}
