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

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Config says which requests are idempotent by their key, and how. Scope is required; the zero value of all else is a good start.
type Config struct {
	// Scope says who a key belongs to, such as the account or the user, as the server knows it: two callers with the same key
	// have nothing to do with each other. Every keyfuncs.Func will do, and keyfuncs.Join for tenant and user. "" is answered
	// 400: authenticate before. ScopeGlobal, if the keys of all callers are one set.
	Scope func(*http.Request) (string, error)
	// Route names the route in its keys: the same key on another route is another key. Records are found, and DownstreamKey stays
	// the same, only for as long as Route does. "": the path of the matched pattern, with what http.StripPrefix has taken away before
	// it and {} for each wildcard, such as /pay/{} for "POST /pay/{id}"; where no route has matched, the path of the request. So
	// wildcards may be renamed. Before a pattern changes otherwise, or the middleware moves to where another pattern is known, set
	// Route to what it has been until then, if only for the TTL. Routes with one Route share their keys, and a key that comes on two
	// of them is answered 422.
	Route string
	// Header is the name of the header that has the key. "": Idempotency-Key.
	Header string
	// Optional runs requests without the header unguarded. Otherwise they are answered 400.
	Optional bool
	// Strict takes only the quoted form of RFC 9651, "8e03978e". Otherwise the bare form, 8e03978e, is the same key.
	Strict bool
	// Methods are those that are guarded; all others pass. nil: POST and PATCH.
	Methods []string

	// WaitTime is how long a repeat waits for the first run; then it is answered as that was. 0: it is answered 409 at once.
	WaitTime time.Duration
	// LeaseTime is how long a run has its key at most, at least 1ms. 0: for as long as it takes, kept by the watchdog.
	LeaseTime time.Duration
	// MaxHold ends the handler's context, with cause guard.ErrMaxHold, when it has had its key for so long. The key is no longer
	// renewed from then on. An answer that the handler gives before the lease is over is recorded like any other; one that comes later
	// is not stored (ErrNotStored), and a repeat may run beside it. At most TTL with OutcomeRefuse. 0: no end. See guard.Config.MaxHold.
	MaxHold time.Duration
	// MaxWaiters is how many repeats of one request wait in this process; one more is answered 503. 0: 1024; -1: no bound.
	MaxWaiters int
	// TTL is how long a result is kept, at least 1ms; StoreFor changes it for one answer. 0: 24h.
	TTL time.Duration

	// Fingerprint says which requests with one key are the same request; all others are answered 422.
	// nil: FingerprintBody.
	Fingerprint Fingerprint
	// Store says which results are kept. header is a copy of the answer's. nil: DefaultStore.
	Store func(status int, header http.Header) bool
	// OnUnknown decides what a repeat gets if the first run ended without a result, so that its outcome
	// is unknown. Zero: OutcomeRerun.
	OnUnknown UnknownOutcome
	// MaxRequestBody is how many bytes a body may have; a longer one is answered 413. All of it is read, and kept in memory, before the
	// lock is acquired, so that a slow client holds none. It does not matter with None, which does not look at the body. 0: 1 MiB.
	MaxRequestBody int64
	// MaxResponseBody is how many bytes of an answer are held back and recorded. A longer one is sent as it comes, and cannot be
	// repeated; nor can one whose record, with its headers and as it is sealed, is more than 64 KiB larger than that. 0: 1 MiB.
	MaxResponseBody int64
	// Codec seals records, so that Redis does not have the answers in the clear. AEAD is one. nil: records are not sealed. With a
	// Codec, records that are not sealed are not read, and are answered as those that cannot be opened; see docs/idempotency.md for how
	// to introduce one.
	Codec Codec
	// Headers says which headers of an answer are recorded, by their canonical names. Those of the connection never are. Nor are
	// headers that were there before the handler ran: whoever set them sets them again. nil: DefaultHeaders.
	Headers HeaderFilter

	// FailOpen runs the handler, without key and record, when Redis cannot be asked. It is logged and observed.
	FailOpen bool
	// ErrorHandler answers what is refused. err is a *guard.Error. nil: guard.WriteProblem.
	ErrorHandler func(w http.ResponseWriter, r *http.Request, err error)
	// Logger takes what the people who run the service should know. nil: slog.Default(). Keys are never logged.
	Logger *slog.Logger
	// Observe is told the outcome of every guarded request, after it. Of a replay the Status is that of the answer, and Err matches
	// ErrReplayed; of a run whose result should have been kept and was not, Err matches ErrNotStored.
	Observe func(r *http.Request, o guard.Outcome)
}

// HeaderFilter says whether the header of that canonical name is kept.
type HeaderFilter func(name string) bool

// UnknownOutcome decides what a repeat gets if the outcome of the first run is unknown, because its
// process died or lost the lock.
type UnknownOutcome int

// The decisions about an unknown outcome.
const (
	// OutcomeRerun runs the handler again once the lock of the first run has expired: at least once in
	// all. The handler must find out by itself what was done, or pass a DownstreamKey to the service
	// that acts.
	OutcomeRerun UnknownOutcome = iota
	// OutcomeRefuse answers 409 outcome-unknown until TTL is over: at most once in all. The outcome of a
	// run that panics, or whose answer is not stored, is known: a repeat runs.
	OutcomeRefuse
)

// ErrInvalidConfig is what Validate's errors match.
var ErrInvalidConfig = errors.New("reqlock: idempotency: invalid Config")

// ErrReplayed is what the Err of a guard.Outcome matches when a request was answered with a record.
var ErrReplayed = errors.New("reqlock: idempotency: answered with the result of an earlier run")

// ErrNotStored is what the Err of a guard.Outcome matches when the handler ran, and its result should have been kept, but was not
// when the answer was sent. Beside it is the cause. The client got the answer all the same.
//
// Where Redis could not be reached, the result is stored after all if Redis comes back before the lease is over; until then, repeats are
// answered 409 or 503. Otherwise, and at once where the lock was lost (core.ErrLockLost), where Redis refused the record or Config.Codec
// failed, the result is gone: a repeat runs again with OutcomeRerun, and is answered 409 outcome-unknown with OutcomeRefuse.
var ErrNotStored = errors.New("reqlock: idempotency: the result of a run is not stored")

const (
	defaultHeader  = "Idempotency-Key"
	defaultTTL     = 24 * time.Hour
	defaultMaxBody = 1 << 20
)

// ScopeGlobal is a Config.Scope for services with one caller: all callers share their keys, and
// anyone who guesses or overhears a key gets the answer that another caller got.
func ScopeGlobal(*http.Request) (string, error) { return "global", nil }

// DefaultStore keeps what is below 500, except answers that say that the request was not dealt with yet: 401, 408, 409, 423, 425
// and 429.
func DefaultStore(status int, _ http.Header) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status < 500
}

// Validate reports everything in the Config that can never work.
func (c Config) Validate() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	refuse(c.Scope == nil, "Scope is nil; say who a key belongs to, such as keyfuncs.Context(userKey), or use ScopeGlobal")
	if problem := routeProblem(c.Route); problem != "" {
		refuse(true, "Route is %q, which %s", c.Route, problem)
	}
	if c.Header != "" {
		problem := headerProblem(c.Header)
		refuse(problem != nil, "Header is %q, which cannot have the key: %v", c.Header, problem)
	}
	refuse(c.Methods != nil && len(c.Methods) == 0, "Methods is empty; leave it nil for POST and PATCH")
	for _, method := range c.Methods {
		refuse(method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "",
			"Methods has %q; use names in capitals, such as http.MethodPost", method)
	}
	refuse(c.TTL != 0 && c.TTL < time.Millisecond, "TTL is %s; use 0 for %s, or at least 1ms", c.TTL, defaultTTL)
	refuse(c.MaxRequestBody < 0, "MaxRequestBody is %d; use 0 for %d, or a number of bytes", c.MaxRequestBody, defaultMaxBody)
	refuse(c.MaxResponseBody < 0, "MaxResponseBody is %d; use 0 for %d, or a number of bytes", c.MaxResponseBody, defaultMaxBody)
	refuse(c.OnUnknown != OutcomeRerun && c.OnUnknown != OutcomeRefuse, "OnUnknown is %d; use OutcomeRerun or OutcomeRefuse", int(c.OnUnknown))
	ttl := c.TTL
	if ttl == 0 {
		ttl = defaultTTL
	}
	refuse(c.OnUnknown == OutcomeRefuse && ttl < c.LeaseTime,
		"TTL is %s and LeaseTime %s; with OutcomeRefuse, what is known of a run has to outlast it", ttl, c.LeaseTime)
	refuse(c.OnUnknown == OutcomeRefuse && ttl < c.MaxHold,
		"TTL is %s and MaxHold %s; with OutcomeRefuse, what is known of a run has to outlast it", ttl, c.MaxHold)
	if c.Fingerprint != nil {
		problems = append(problems, c.Fingerprint.validate())
	}
	problems = append(problems, c.guard().Validate())
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return nil
}

// headerProblem asks the package that knows.
func headerProblem(name string) (problem any) {
	defer func() { problem = recover() }()
	keyfuncs.Header(name)
	return nil
}

// withDefaults fills in what was left at zero, except what guard fills in.
func (c Config) withDefaults() Config {
	c.Header = http.CanonicalHeaderKey(cmp.Or(c.Header, defaultHeader))
	c.TTL = cmp.Or(c.TTL, defaultTTL)
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

// guard returns the Config of the guard below.
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
