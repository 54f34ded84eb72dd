package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Config says which requests exclude each other, and how. Key, Keys or Policy is required, exactly one of them; the zero
// value of all else is a good start: 409 at once, and a lock that is renewed for as long as the handler runs.
type Config struct {
	// Key derives one key per request. Braces, percent signs, control characters and broken UTF-8 in it become %XX before a
	// name is made of it; what is longer than 256 bytes then becomes a hash.
	Key keyfuncs.Func
	// Keys derive several; a request gets all of the locks or none, as one (core.MultiLock): requests with the same keys in
	// different order never wait for each other. Equal keys count once.
	Keys []keyfuncs.Func
	// Policy decides everything per request.
	Policy PolicyFunc

	// WaitTime is how long a request waits for others. 0: it is answered 409 at once. Negative values, WaitForever among
	// them, are refused: a client, or a proxy, gives up some time.
	WaitTime time.Duration
	// LeaseTime is how long the lock is held at most, at least 1ms. 0: for as long as the handler runs, kept by the watchdog.
	LeaseTime time.Duration
	// MaxHold ends the handler's context, with cause ErrMaxHold, and its reading of the request body, when it has held the
	// lock for so long. The lock is no longer renewed from then on, and goes when the handler returns or its lease is over.
	// It is logged once a minute for each route. 0: no end.
	//
	// It is not for handlers that call http.ResponseController.EnableFullDuplex: where such a one has begun its answer on HTTP/1 when
	// its reading is ended, the server takes the rest of the body for the next request.
	MaxHold time.Duration
	// MaxWaiters is how many requests of this process wait for one lock; one more is answered 503. 0: 1024; -1: no bound.
	MaxWaiters int
	// BufferBody reads the body before the lock is acquired, so that a slow client holds no lock, and one that leaves while
	// it waits is noticed. A body of more bytes is answered 413. 0: off; a client that leaves during the wait is then noticed only
	// if it sent no body.
	BufferBody int64
	// Mode is the kind of lock.
	Mode Mode
	// Locker, if set, makes the lock of a name: any lock of package core, of any client. Mode stays at
	// ModeExclusive then. Acquire of such a lock may fail with an *Error, wrapped or not, which is
	// answered as it is. Or its error, wrapped or not, is an http.Handler: then that answers the request,
	// in place of the handler and of ErrorHandler. Outcome.Status is its Status() int, if it has that
	// method.
	Locker func(r *http.Request, name string) core.Locker
	// Name makes the lock's name of a key. nil: "reqlock:" before it. See Exact.
	Name func(key string) string
	// RetryAfter is the hint on refusals, rounded up to whole seconds. 0: 1s.
	RetryAfter time.Duration
	// PassPreflight runs the handler of a CORS preflight (OPTIONS with Origin and
	// Access-Control-Request-Method) without a lock. Set it only if a CORS middleware inside the
	// guard answers preflights, or a router inside it does. A client can make any OPTIONS request a
	// preflight, and a handler that does not look at the method would run beside the holder of its
	// lock. false: a preflight needs the lock like any other request.
	PassPreflight bool
	// FailOpen runs the handler without a lock when Redis cannot be asked. It is logged and observed. Never when a request
	// can have caused it.
	FailOpen bool
	// ErrorHandler answers what the guard refuses. err is an *Error. nil: WriteProblem.
	ErrorHandler func(w http.ResponseWriter, r *http.Request, err error)
	// Logger takes what the people who run the service should know. nil: slog.Default(). Keys are
	// not logged, unless core.Options.LogNames puts the names of locks into the errors of core.
	Logger *slog.Logger
	// Observe is told the outcome of every request that the guard decided on, after it.
	Observe func(r *http.Request, o Outcome)
}

// Outcome is what became of a request.
type Outcome struct {
	// Ran says that the handler ran: under its lock, or without one if FailedOpen.
	Ran bool
	// Status is that of the answer: of the guard's own if the handler did not run, 499 if the
	// client left before, or else the handler's, as far as its framework tells. 0: not known. The
	// guard does not wrap the http.ResponseWriter, and that of net/http does not tell; one of a
	// middleware further out does if it has a method Status() int, as chi's
	// middleware.WrapResponseWriter has. Gin and Echo tell, unless the handler leaves an error for
	// others to answer. A handler that panics has no status.
	Status int
	// Waited is how long the request waited for its locks.
	Waited time.Duration
	// Held is the time from then until the handler returned.
	Held time.Duration
	// FailedOpen says that the handler ran without a lock; see Config.FailOpen.
	FailedOpen bool
	// Err says why there was no lock (an *Error, unless FailedOpen; the error that answered the
	// request, if one did: see Config.Locker), that MaxHold was over while
	// the handler ran (ErrMaxHold), that the lock was lost meanwhile (core.ErrLockLost,
	// core.ErrClosed), or what adapter.ReleaseBy failed with. Test for it with errors.Is: it may be two of
	// these. nil: all went well.
	Err error
}

// ErrInvalidConfig is what Validate's errors match.
var ErrInvalidConfig = errors.New("reqlock: guard: invalid Config")

// Validate reports everything in the Config that can never work.
func (c Config) Validate() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	ways := 0
	for _, set := range []bool{c.Key != nil, len(c.Keys) > 0, c.Policy != nil} {
		if set {
			ways++
		}
	}
	refuse(ways != 1, "set exactly one of Key, Keys and Policy; there are %d", ways)
	for i, key := range c.Keys {
		refuse(key == nil, "Keys[%d] is nil", i)
	}
	problems = append(problems, checkTimes(c.WaitTime, c.LeaseTime)...)
	refuse(c.MaxHold < 0, "MaxHold is %s; use 0 for no end, or a positive duration", c.MaxHold)
	refuse(c.MaxWaiters < -1, "MaxWaiters is %d; use 0 for 1024, -1 for no bound, or a positive number", c.MaxWaiters)
	refuse(c.BufferBody < 0, "BufferBody is %d; use 0 for off, or a number of bytes", c.BufferBody)
	refuse(c.RetryAfter < 0, "RetryAfter is %s; use 0 for %s, or a positive duration", c.RetryAfter, defaultRetryAfter)
	if err := c.Mode.check(len(c.Keys), c.Locker != nil); err != nil {
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalidConfig, errors.Join(problems...))
}

// checkTimes is for both Config and Policy.
func checkTimes(wait, lease time.Duration) (problems []error) {
	switch {
	case wait == core.WaitForever:
		problems = append(problems, errors.New("WaitTime is WaitForever; a request cannot wait for ever: use a duration, or 0 for 409 at once"))
	case wait < 0:
		problems = append(problems, fmt.Errorf("WaitTime is %s; use 0 for 409 at once, or a positive duration", wait))
	}
	if lease != 0 && lease < time.Millisecond {
		problems = append(problems, fmt.Errorf("LeaseTime is %s; use 0 for the watchdog, or at least 1ms", lease))
	}
	return problems
}

const defaultRetryAfter = time.Second

// withDefaults fills in what was left at zero.
func (c Config) withDefaults() Config {
	c.Keys = slices.Clone(c.Keys)
	if c.Key != nil {
		c.Keys = []keyfuncs.Func{c.Key}
	}
	if c.Name == nil {
		c.Name = func(key string) string { return "reqlock:" + key }
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = defaultRetryAfter
	}
	if c.ErrorHandler == nil {
		c.ErrorHandler = WriteProblem
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}
