package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Config decides which requests are idempotent by their key, and how. Scope is required; the zero
// value of every other field is a good start.
type Config struct {
	// Scope returns the owner of a key, such as the account or the user, as the server knows it:
	// equal keys of two owners are independent. Any keyfuncs.Func works; keyfuncs.Join combines
	// tenant and user. "" gets 400: authenticate first. Use ScopeGlobal if all callers share
	// their keys.
	Scope func(*http.Request) (string, error)
	// Route names the route: the same key on another route is another key. Records are found, and
	// DownstreamKey stays the same, only while Route does. "": the path of the matched pattern with
	// {} for each wildcard, such as /pay/{} for "POST /pay/{id}", after the prefix that
	// http.StripPrefix removed; or the path of the request, if no route has matched. So a wildcard
	// may get another name. Before any other change of the pattern, and before the middleware moves
	// to where another pattern is known, set Route to the old name, for at least one TTL. Routes
	// with the same Route share their keys; a key used on two of them gets 422.
	Route string
	// Header is the name of the header with the key. "": Idempotency-Key.
	Header string
	// Optional runs requests without the header unguarded. false: they get 400.
	Optional bool
	// Strict accepts only the quoted form of RFC 9651, "8e03978e". false: the bare form, 8e03978e,
	// is the same key.
	Strict bool
	// KeyUUID accepts only UUIDs as keys. One UUID is one key in all the forms that keyfuncs.UUID
	// reads, and KeyFrom returns the canonical one. false: any text is a key, and upper case is
	// another one. A change makes repeats with keys that are not canonical run again.
	KeyUUID bool
	// Methods are the guarded methods; all others pass. nil: POST and PATCH.
	Methods []string

	// WaitTime is how long a repeat waits for the first run, to get its answer. 0: the repeat is
	// answered 409 at once.
	WaitTime time.Duration
	// LeaseTime is how long a run holds its key at most, at least 1ms. 0: the watchdog renews it
	// for as long as the handler runs.
	LeaseTime time.Duration
	// MaxHold bounds how long a handler holds its key. When it is over, the handler's context ends
	// with cause guard.ErrMaxHold, and the key is no longer renewed. An answer below 400 that the
	// handler gives before the lease expires is stored like any other; a later one is not
	// (ErrNotStored), and a repeat may run at the same time. At most TTL with OutcomeRefuse. 0: no
	// bound. See guard.Config.MaxHold.
	MaxHold time.Duration
	// MaxWaiters is how many repeats of one request may wait in this process; the next one is
	// answered 503. 0: 1024; -1: no bound.
	MaxWaiters int
	// TTL is how long a result is kept, at least 1ms; StoreFor changes it for one answer. 0: 24h.
	TTL time.Duration
	// ErrorTTL is how long an answer of 400 to 499 is kept, at least 1ms, if Store keeps it. It is
	// shorter than TTL, because clients make many bad requests, and repeat few of them. If an earlier
	// run of the key left no answer, TTL applies. 0: 10 minutes, or TTL if that is shorter.
	ErrorTTL time.Duration
	// MaxKeys is how many keys one scope may use within TTL, over all routes that set it. A new key
	// beyond that gets 429 key-quota; repeats of known keys are answered as always. It costs each run
	// one round trip. 0: no bound.
	MaxKeys int
	// Locks has the locks and records in place of the client that the guard is made with, such as one
	// for a Redis of their own: a Redis that is full of records refuses locks. nil: that client.
	Locks *core.Client

	// Fingerprint decides whether a request with the same key is a repeat; if not, it is answered
	// 422. nil: FingerprintBody.
	Fingerprint Fingerprint
	// Store reports whether to keep a result. header is a copy of the answer's. nil: DefaultStore.
	Store func(status int, header http.Header) bool
	// OnUnknown decides what a repeat gets if the first run ended without a result, so that its
	// outcome is unknown. Zero: OutcomeRerun.
	OnUnknown UnknownOutcome
	// MaxRequestBody is the largest body, in bytes; a longer one gets 413, unless its key has a record
	// from when the limit was higher: then it is read, within guard.SetBodyBudget. The body is read
	// into memory before the lock is acquired, so that a slow client holds none. FingerprintNone
	// does not read the body. 0: 1 MiB.
	MaxRequestBody int64
	// MaxResponseBody is how many bytes of an answer are held back and recorded. A longer answer is
	// sent as it comes and cannot be replayed. The same goes for an answer whose record, with its
	// headers and after Codec, is more than 64 KiB larger than that. 0: 1 MiB.
	MaxResponseBody int64
	// Codec seals records, so that Redis does not see the answers. AEAD is one. nil: records are
	// not sealed. With a Codec, records that are not sealed are answered as those that cannot be
	// opened. docs/guides/idempotency-rules.md#sealed-records says how to introduce one.
	Codec Codec
	// Headers reports which headers of an answer to record, by canonical name. Headers of the
	// connection never are recorded. Neither are headers that were set before the handler ran, unless
	// it sets them again: they are set again before a replay. nil: DefaultHeaders.
	Headers HeaderFilter

	// FailOpen runs the handler, without key and record, if Redis is unavailable. It is logged and
	// observed.
	FailOpen bool
	// ErrorHandler answers refusals. err is a *guard.Error. nil: guard.WriteProblem.
	ErrorHandler func(w http.ResponseWriter, r *http.Request, err error)
	// Logger logs what operators need to know. nil: slog.Default(). Keys are never logged.
	Logger *slog.Logger
	// Observe is called with the outcome of every guarded request, at its end. For a replay, Status
	// is that of the answer, and Err matches ErrReplayed. If a result should have been stored and
	// was not, Err matches ErrNotStored.
	Observe func(r *http.Request, o guard.Outcome)
}

// A HeaderFilter reports whether to record the header with a canonical name.
type HeaderFilter func(name string) bool

// UnknownOutcome decides what a repeat gets if the outcome of the first run is unknown, because its
// process died or lost the lock.
type UnknownOutcome int

// The decisions about an unknown outcome.
const (
	// OutcomeRerun runs the handler again once the lock of the first run has expired: at least once
	// in all. The handler must find out by itself what was done, or pass a DownstreamKey to the
	// service that acts.
	OutcomeRerun UnknownOutcome = iota
	// OutcomeRefuse answers 409 outcome-unknown until TTL is over: at most once in all. So it does
	// after a handler that panics, calls runtime.Goexit, or is interrupted by the loss of its lock,
	// MaxHold or a deadline, and has no answer below 400. After any other answer that is not stored,
	// such as a 5xx, a repeat runs: the handler has ended in order, and can say Outcome(ctx).Done if
	// it must not.
	OutcomeRefuse
)

// ErrInvalidConfig matches the errors of Validate.
var ErrInvalidConfig = errors.New("reqlock: idempotency: invalid Config")

// ErrReplayed matches the Err of a guard.Outcome if the request was answered with a record.
var ErrReplayed = errors.New("reqlock: idempotency: answered with the result of an earlier run")

// ErrNotStored matches the Err of a guard.Outcome, together with the cause, if the handler ran but
// its result was not stored before the answer was sent. The client got the answer.
//
// If Redis was unreachable and comes back before the lease expires, the result is stored after all;
// until then, repeats get 409 or 503. Otherwise the result is gone, and it is gone at once
// if the lock was lost (core.ErrLockLost), if Redis refused the record, or if Config.Codec failed.
// Then a repeat runs again with OutcomeRerun, and gets 409 outcome-unknown with
// OutcomeRefuse.
var ErrNotStored = errors.New("reqlock: idempotency: the result of a run is not stored")

const (
	defaultHeader  = "Idempotency-Key"
	defaultTTL     = 24 * time.Hour
	defaultMaxBody = 1 << 20

	defaultErrorTTL = 10 * time.Minute
)

// ScopeGlobal is a Config.Scope for services with one caller. All callers share their keys, and
// anyone who guesses or overhears a key gets the answer that another caller got.
func ScopeGlobal(*http.Request) (string, error) { return "global", nil }

// DefaultStore keeps answers below 500, except 401, 408, 409, 412, 416, 421, 423, 425 and 429. They
// say that the request was not processed, and may be if it is sent again. It keeps 206, because the
// work is done, and 304: a request with another Range or condition is another request, unless
// Fingerprint is FingerprintNone.
func DefaultStore(status int, _ http.Header) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed,
		http.StatusRequestedRangeNotSatisfiable, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status < 500
}

// StoreSuccess keeps answers of 200 to 399 only: a request that failed runs again. Use it as
// Config.Store if handlers answer 4xx before they have changed anything.
func StoreSuccess(status int, _ http.Header) bool { return status < 400 }

// Validate reports everything in the Config that can never work.
func (c Config) Validate() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	refuse(c.Scope == nil, "Scope is nil; return whom a key belongs to, such as keyfuncs.Context(userKey), or use ScopeGlobal")
	if problem := routeProblem(c.Route); problem != "" {
		refuse(true, "Route is %q, which %s", c.Route, problem)
	}
	if c.Header != "" {
		problem := headerProblem(c.Header)
		refuse(problem != nil, "Header is %q, which cannot carry the key: %v", c.Header, problem)
	}
	refuse(c.Methods != nil && len(c.Methods) == 0, "Methods is empty; leave it nil for POST and PATCH")
	for _, method := range c.Methods {
		refuse(method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "",
			"Methods has %q; use names in capitals, such as http.MethodPost", method)
	}
	refuse(c.TTL != 0 && c.TTL < time.Millisecond, "TTL is %s; use 0 for %s, or at least 1ms", c.TTL, defaultTTL)
	refuse(c.ErrorTTL != 0 && c.ErrorTTL < time.Millisecond, "ErrorTTL is %s; use 0 for %s, or at least 1ms", c.ErrorTTL, defaultErrorTTL)
	refuse(c.ErrorTTL > cmp.Or(c.TTL, defaultTTL), "ErrorTTL is %s and TTL %s; use at most TTL", c.ErrorTTL, cmp.Or(c.TTL, defaultTTL))
	refuse(c.MaxKeys < 0, "MaxKeys is %d; use 0 for no bound, or a number of keys", c.MaxKeys)
	refuse(c.MaxRequestBody < 0, "MaxRequestBody is %d; use 0 for %d, or a number of bytes", c.MaxRequestBody, defaultMaxBody)
	refuse(c.MaxResponseBody < 0, "MaxResponseBody is %d; use 0 for %d, or a number of bytes", c.MaxResponseBody, defaultMaxBody)
	refuse(c.OnUnknown != OutcomeRerun && c.OnUnknown != OutcomeRefuse, "OnUnknown is %d; use OutcomeRerun or OutcomeRefuse", int(c.OnUnknown))
	ttl := c.TTL
	if ttl == 0 {
		ttl = defaultTTL
	}
	refuse(c.OnUnknown == OutcomeRefuse && ttl < c.LeaseTime,
		"TTL is %s and LeaseTime %s; with OutcomeRefuse, TTL must be at least as long", ttl, c.LeaseTime)
	refuse(c.OnUnknown == OutcomeRefuse && ttl < c.MaxHold,
		"TTL is %s and MaxHold %s; with OutcomeRefuse, TTL must be at least as long", ttl, c.MaxHold)
	if c.Fingerprint != nil {
		problems = append(problems, c.Fingerprint.validate())
	}
	problems = append(problems, c.guard().Validate())
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return nil
}

// headerProblem returns why keyfuncs.Header refuses a name; nil: it does not.
func headerProblem(name string) (problem any) {
	defer func() { problem = recover() }()
	keyfuncs.Header(name)
	return nil
}

// withDefaults replaces zero values, except those that guard replaces.
func (c Config) withDefaults() Config {
	c.Header = http.CanonicalHeaderKey(cmp.Or(c.Header, defaultHeader))
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	c.ErrorTTL = cmp.Or(c.ErrorTTL, min(c.TTL, defaultErrorTTL))
	c.MaxRequestBody = cmp.Or(c.MaxRequestBody, defaultMaxBody)
	c.MaxResponseBody = cmp.Or(c.MaxResponseBody, defaultMaxBody)
	if c.Methods = slices.Clone(c.Methods); c.Methods == nil {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if c.Fingerprint == nil {
		c.Fingerprint = FingerprintBody
	}
	if c.Store == nil {
		c.Store = DefaultStore
	}
	if c.Headers == nil {
		c.Headers = DefaultHeaders
	}
	if c.ErrorHandler == nil {
		c.ErrorHandler = guard.WriteProblem
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// guard returns the Config of the inner guard.
func (c Config) guard() guard.Config {
	return guard.Config{
		Policy:       policy,
		WaitTime:     c.WaitTime,
		LeaseTime:    c.LeaseTime,
		MaxHold:      c.MaxHold,
		MaxWaiters:   c.MaxWaiters,
		FailOpen:     c.FailOpen,
		ErrorHandler: c.ErrorHandler,
		Logger:       c.Logger,
		Observe:      c.Observe,
	}
}
