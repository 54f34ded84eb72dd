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
	recordUnreadable = "record-unreadable"
	recordUnwritable = "record-unwritable"
)

var problems = map[string]struct {
	status        int
	title, detail string
	retry         time.Duration
}{
	keyMissing: {http.StatusBadRequest, "The idempotency key is missing", "", 0},
	keyInvalid: {http.StatusBadRequest, "The idempotency key cannot be used", "", 0},
	keyReused: {http.StatusUnprocessableEntity, "The idempotency key was used for another request",
		"A key stands for one request, and this one differs from the one that the key was used for. Nothing was done. Use a new key for a new request.", 0},
	notReplayable: {http.StatusConflict, "The answer cannot be repeated",
		"This request has been processed, but its answer was of a kind that is not kept. Nothing was done now. Look up the result, and do not send the request again.", 0},
	outcomeUnknown: {http.StatusConflict, "The outcome is unknown",
		"The processing of this request was interrupted, and may have had an effect or not. Nothing was done now. Look up the result before using a new key.", 0},
	recordUnreadable: {http.StatusServiceUnavailable, "The recorded answer cannot be read",
		"There is a record of this request which this server cannot read. Nothing was done now. Try again later.", time.Second},
	recordUnwritable: {http.StatusServiceUnavailable, "The request cannot be recorded",
		"The service cannot make a record of this request at the moment. Nothing was done. Try again later.", time.Second},
}

// newError makes a refusal. detail "": that of the problem.
func newError(problem, detail string, cause error) *guard.Error {
	p := problems[problem]
	if detail == "" {
		detail = p.detail
	}
	return &guard.Error{
		Status: p.status, Type: "urn:reqlock:problem:" + problem, Title: p.title, Detail: detail, RetryAfter: p.retry, Err: cause,
	}
}
