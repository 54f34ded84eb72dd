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

// Config decides which requests exclude each other, and how. It needs exactly one of Key, Keys and
// Policy. The zero value of every other field is a good start: 409 at once, and a lock that is
// renewed for as long as the handler runs.
type Config struct {
	// Key derives one key per request. Braces, percent signs, control characters and invalid UTF-8
	// in it become %XX. A key that is longer than 256 bytes then is replaced by its hash.
	Key keyfuncs.Func
	// Keys is for several keys, in place of Key. A request gets all of the locks or none, as one
	// (core.MultiLock), so requests with the same keys in another order never deadlock. Equal keys
	// count once.
	Keys []keyfuncs.Func
	// Policy decides everything per request.
	Policy PolicyFunc

	// WaitTime is how long a request waits for a held lock. 0: it gets 409 at once. Negative
	// values, core.WaitForever among them, are refused: clients and proxies give up at some point.
	WaitTime time.Duration
	// LeaseTime is how long the lock is held at most, at least 1ms. 0: the watchdog renews it for
	// as long as the handler runs.
	LeaseTime time.Duration
	// MaxHold bounds how long a handler holds the lock. When it is over, the handler's context ends
	// with cause ErrMaxHold, its reading of the request body fails, and the lock is no longer
	// renewed. The lock is released when the handler returns, or expires before. The guard logs it
	// once a minute for each route. 0: no bound.
	//
	// From 3s later on, or half of what is left of the lease if that is less, all that the handler
	// writes fails: a client that does not read its answer keeps no lock. That holds until the
	// handler returns or gives up the lock, and for HTTP/2 until the end of the request. It needs a
	// writer that http.ResponseController can give a deadline, by itself or by Unwrap, and a
	// LeaseTime beyond MaxHold, or none.
	//
	// It does not suit handlers that call http.ResponseController.EnableFullDuplex. If such a
	// handler has begun its answer on HTTP/1 when its reading ends, the server takes the rest of
	// the body for the next request.
	MaxHold time.Duration
	// MaxWaiters is how many requests of this process may wait for one lock; the next one is
	// answered 503. 0: 1024; -1: no bound.
	MaxWaiters int
	// BufferBody reads up to this many bytes of the body before the guard acquires the lock. A slow
	// client then holds no lock, and the guard notices a client that leaves while it waits. A
	// longer body gets 413. 0: off; the guard then notices a client that leaves only if it
	// sent no body.
	BufferBody int64
	// Mode is the kind of lock.
	Mode Mode
	// Fenced gives the lease of each request a fencing token; see core.Lease.Token. It goes with
	// every Mode but ModeRead: readers get none, so with ModeReadWrite only GET and HEAD lack it. It
	// needs a single key, and no Locker.
	Fenced bool
	// Locker returns the lock for a name: any lock of package core, of any client. nil: Mode
	// decides. With a Locker, leave Mode at ModeExclusive. Acquire of such a lock may fail with an
	// *Error, wrapped or not, which is answered as it is. Or its error, wrapped or not, is an
	// http.Handler: then that answers the request, in place of the handler and of ErrorHandler.
	// Outcome.Status is its Status() int, if it has that method.
	Locker func(r *http.Request, name string) core.Locker
	// Name returns the name of the lock for a key. nil: "reqlock:" before the key. See Exact.
	Name func(key string) string
	// RetryAfter is the Retry-After of refusals, rounded up to whole seconds. 0: 1s.
	RetryAfter time.Duration
	// PassPreflight runs the handler of a CORS preflight (OPTIONS with Origin and
	// Access-Control-Request-Method) without a lock. Set it only if a CORS middleware inside the
	// guard answers preflights, or a router inside it does. A client can make any OPTIONS request a
	// preflight, and a handler that does not look at the method would run at the same time as the
	// holder of its lock. false: a preflight needs the lock like any other request.
	PassPreflight bool
	// FailOpen runs the handler without a lock if Redis is unavailable. The guard logs and observes
	// it. It never applies to an error that the request can cause, to a fault that lasts until
	// an operator changes the set-up (core.ErrMisconfigured: 500 misconfigured), or if a read-only
	// replica was reached (core.ErrReadOnly), whose primary may grant the lock to others.
	FailOpen bool
	// ErrorHandler answers what the guard refuses. err is an *Error. nil: WriteProblem.
	ErrorHandler func(w http.ResponseWriter, r *http.Request, err error)
	// Logger logs what operators need to know. nil: slog.Default(). Keys are not logged, unless
	// core.Options.LogNames puts the names of locks into the errors of core.
	Logger *slog.Logger
	// Observe is called with the outcome of every request that the guard did not skip, at its end.
	Observe func(r *http.Request, o Outcome)
}

// An Outcome is the result of one request in a guard.
type Outcome struct {
	// Ran reports whether the handler ran: under its lock, or without one if FailedOpen.
	Ran bool
	// Status is the status of the answer; 0: unknown. If the handler did not run, it is that of the
	// guard's answer, or 499 if the client left. Otherwise the guard knows it only from a writer
	// with a method Status() int, because it does not wrap the http.ResponseWriter: from those of
	// Gin and Echo, and of middleware such as chi's WrapResponseWriter, but not from those of
	// net/http. It stays unknown if the handler panics, or leaves its error to middleware.
	Status int
	// Waited is how long the request waited for its locks.
	Waited time.Duration
	// Held is the time from then until the handler returned.
	Held time.Duration
	// FailedOpen reports whether the handler ran without a lock; see Config.FailOpen.
	FailedOpen bool
	// Err says why the handler did not run or had no lock: an *Error, the cause if FailedOpen, or
	// the error that answered the request, see Config.Locker. If the handler ran, Err says that
	// MaxHold was over (ErrMaxHold), that the lock was lost (core.ErrLockLost, core.ErrClosed), or
	// why ReleaseBy failed. Test it with errors.Is: it may match two of these. nil: all
	// went well.
	Err error
}

// ErrInvalidConfig matches the errors of Validate.
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
	refuse(ways != 1, "set exactly one of Key, Keys and Policy; %d are set", ways)
	for i, key := range c.Keys {
		refuse(key == nil, "Keys[%d] is nil", i)
	}
	problems = append(problems, checkTimes(c.WaitTime, c.LeaseTime)...)
	refuse(c.MaxHold < 0, "MaxHold is %s; use 0 for no end, or a positive duration", c.MaxHold)
	refuse(c.MaxWaiters < -1, "MaxWaiters is %d; use 0 for 1024, -1 for no bound, or a positive number", c.MaxWaiters)
	refuse(c.BufferBody < 0, "BufferBody is %d; use 0 for off, or a number of bytes", c.BufferBody)
	refuse(c.RetryAfter < 0, "RetryAfter is %s; use 0 for %s, or a positive duration", c.RetryAfter, defaultRetryAfter)
	if err := c.Mode.check(len(c.Keys), c.Locker != nil, c.Fenced); err != nil {
		problems = append(problems, err)
	}
	refuse(c.Fenced && c.Mode == ModeRead && c.Policy == nil, "Fenced is set with ModeRead, but readers have no tokens; leave Fenced out, or use ModeReadWrite")
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalidConfig, errors.Join(problems...))
}

// checkTimes serves both Config and Policy.
func checkTimes(wait, lease time.Duration) (problems []error) {
	switch {
	case wait == core.WaitForever:
		problems = append(problems, errors.New("WaitTime is WaitForever; a request cannot wait forever: use a duration, or 0 for 409 at once"))
	case wait < 0:
		problems = append(problems, fmt.Errorf("WaitTime is %s; use 0 for 409 at once, or a positive duration", wait))
	}
	if lease != 0 && lease < time.Millisecond {
		problems = append(problems, fmt.Errorf("LeaseTime is %s; use 0 for the watchdog, or at least 1ms", lease))
	}
	return problems
}

const defaultRetryAfter = time.Second

// withDefaults replaces zero values.
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
