package idempotency

import (
	"net/http"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// The problem types, after "urn:reqlock:problem:".
const (
	keyMissing       = "key-missing"
	keyInvalid       = "key-invalid"
	keyReused        = "key-reused"
	notReplayable    = "not-replayable"
	outcomeUnknown   = "outcome-unknown"
	runFailed        = "run-failed"
	keyQuota         = "key-quota"
	recordUnreadable = "record-unreadable"
	recordUnwritable = "record-unwritable"
)

var problems = map[string]struct {
	status        int
	title, detail string
	retry         time.Duration
}{
	keyMissing: {http.StatusBadRequest, "Idempotency key missing", "", 0},
	keyInvalid: {http.StatusBadRequest, "Idempotency key invalid", "", 0},
	keyReused: {http.StatusUnprocessableEntity, "Idempotency key used for another request",
		"This request differs from the first request with its key, and was not processed. Use a new key for a new request.", 0},
	notReplayable: {http.StatusConflict, "Answer not available again",
		"The first request with this key was processed, but its answer could not be recorded. This request was not processed. Look up the result instead of repeating the request.", 0},
	outcomeUnknown: {http.StatusConflict, "Outcome unknown",
		"The processing of the first request with this key was interrupted, and may have had an effect. This request was not processed. Look up the result before you use a new key.", 0},
	runFailed: {http.StatusConflict, "First request failed",
		"The request with this key that was being processed ended without an answer to repeat. This request was not processed. Send it again, unchanged.", time.Second},
	keyQuota: {http.StatusTooManyRequests, "Too many idempotency keys",
		"Too many keys were used lately. This request was not processed. Try again later, with the same key.", time.Minute},
	recordUnreadable: {http.StatusServiceUnavailable, "Recorded answer unreadable",
		"This server cannot read the recorded answer to the first request with this key. This request was not processed. Try again later.", time.Second},
	recordUnwritable: {http.StatusServiceUnavailable, "Request not recordable",
		"The server cannot record this request at the moment. The request was not processed. Try again later.", time.Second},
}

// newError returns a refusal. detail "": the problem's own.
func newError(problem, detail string, cause error) *guard.Error {
	p := problems[problem]
	if detail == "" {
		detail = p.detail
	}
	return &guard.Error{
		Status: p.status, Type: "urn:reqlock:problem:" + problem, Title: p.title, Detail: detail, RetryAfter: p.retry, Err: cause,
	}
}
