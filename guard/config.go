package guard

import (
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

	// Limit lets up to this many requests with a key in at a time, at least 2. Each takes a permit of
	// a core.Semaphore, in place of a lock. The next one waits for WaitTime, and then gets 429. A key
	// and its Limit make the name, so guards with the same Limit share the permits of a key, and those
	// with another Limit count on their own. So does a new version of the program with another Limit,
	// while both run. A request that passes two such guards takes two permits. 0: a lock. Limit does
	// not go with Mode, Fenced and Locker.
	Limit int

	// WaitTime is how long a request waits for a held lock. 0: it gets 409 at once. Less than 1ms is
	// refused, because it lacks its unit. So are negative values, core.WaitForever among them: clients
	// and proxies give up at some point.
	WaitTime time.Duration
	// LeaseTime is how long the lock is held at most, at least 1ms. 0: the watchdog renews it for
	// as long as the handler runs.
	LeaseTime time.Duration
	// MaxHold bounds how long a handler holds the lock. When it is over, the handler's context ends
	// with cause ErrMaxHold, its reading of the request body fails, and the lock is no longer
	// renewed. The lock is released when the handler returns, or expires before. The guard logs it
	// once a minute for each route. Less than 1ms is refused. 0: no bound.
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
	// Delegates lets a request that brings a token of its caller's hold enter that, as a guest; see
	// core.WithDelegation. The client of the locks needs core.Options.Delegation. The tokens are in the
	// header Reqlock-Delegation, which httplock.Transport sets. A request without a token that counts
	// waits like anyone, and one whose caller's hold is over gets 409. The guard does not remove the
	// header. With a Limit, the request uses its caller's permit. DelegatesOneAtATime does not go with
	// fencing tokens. DelegatesNone ignores the header.
	Delegates Delegates
	// Locker returns the lock for a name: any lock of package core, of any client. nil: Mode
	// decides. With a Locker, leave Mode at ModeExclusive. Acquire of such a lock may fail with an
	// *Error, wrapped or not, which is answered as it is. Or its error, wrapped or not, is an
	// http.Handler: then that answers the request, in place of the handler and of ErrorHandler.
	// Outcome.Status is its Status() int, if it has that method.
	Locker func(r *http.Request, name string) core.Locker
	// Name returns the name of the lock for a key. nil: "reqlock:" before the key. See Exact. With
	// Limit, the key begins with %limit:N:, such as %limit:5:order:42, which the key of a lock never
	// does. So a lock and a limit of the same key have two names.
	Name func(key string) string
	// RetryAfter is the Retry-After of refusals, rounded up to whole seconds. 0: 1s. Less than 1ms is
	// refused.
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

// A PolicyFunc decides how a request is guarded. p comes with the values of the Config, and without
// keys. Its error is treated like a key function's; an *Error is answered as it is.
type PolicyFunc func(r *http.Request, p *Policy) error

// A Policy says what to lock for one request, and how.
type Policy struct {
	// Keys has at least one key, unless Lock or Skip is set.
	Keys []string
	// Mode, Fenced, Limit, WaitTime and LeaseTime are those of the Config, unless the policy changes
	// them.
	Mode      Mode
	Fenced    bool
	Limit     int
	WaitTime  time.Duration
	LeaseTime time.Duration
	// Skip runs the handler without a lock.
	Skip bool

	// Lock is the lock itself, in place of Keys, Mode, Limit, Config.Name and Config.Locker. Its errors
	// are treated as those of a lock of Config.Locker. nil: the lock has the name of the keys.
	Lock core.Locker
}
