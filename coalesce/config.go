package coalesce

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/request"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Config says which requests share an answer, and how. The zero value is a good start for answers
// that do not depend on who asks: GET and HEAD of one URL share.
type Config struct {
	// Key says what a request asks for. Requests with one key share an answer, if they have the same
	// method, user and Vary headers. nil: the host, the path and the query.
	Key keyfuncs.Func
	// Policy decides in place of Key, such as wasm.Plugin.Policy. Only its Keys, together, WaitTime,
	// LeaseTime and Skip count.
	Policy guard.PolicyFunc
	// User says who asks, such as keyfuncs.Context(userKey). It is a part of the key. Everyone is for
	// answers that do not depend on it. nil: requests with Authorization or Cookie get a shared answer
	// only if it says Cache-Control: public, or if Vary has the header. Other signs of a user, such as
	// a header that a proxy sets, need a User.
	User keyfuncs.Func
	// Vary has the request headers that answers depend on, such as Accept-Language. They are a part of
	// the key. An answer whose Vary has another one is not shared.
	Vary []string
	// Unsafe says why methods other than GET and HEAD may share, such as "the POST is a query". Then
	// all do. It needs a Key or a Policy, because the default key lacks the body. "": they run.
	Unsafe string

	// WaitTime is how long a request waits for the answer of another, at least 1ms. Then it gets 409
	// wait-timeout. 0: 30s.
	WaitTime time.Duration
	// LeaseTime is how long a run lasts at most, at least 1ms. When it is over, the run's context ends,
	// and a request that waits runs. It is also how long a killed process keeps others waiting. 0: the
	// watchdog renews the lease while the run lasts. A killed process then keeps others waiting for
	// core.Options.WatchdogTimeout.
	LeaseTime time.Duration
	// MaxWaiters is how many requests of this process may wait for one answer. The next one gets 503
	// queue-full. 0: 1024; -1: no bound.
	MaxWaiters int
	// Keep is how long an answer is in Redis when the run has ended. Requests that come meanwhile get
	// it, too. At least 1ms and at most an hour. When an answer could not be shared, requests run at
	// once for as long, but at most for 2s. 0: 2s.
	Keep time.Duration
	// ErrorFor is the same for answers from 500 on, and for the 500 of a run that panics. Negative: they
	// are not shared, and the next request runs. 0: 1s.
	ErrorFor time.Duration
	// Stale is how long an answer is stale after Keep. The first request that comes meanwhile runs, in all
	// processes, and its client waits for the new answer: nothing runs in the background, because the
	// contexts of frameworks end with their requests. The others get the old answer at once, until the
	// new one is there. If the run gives an answer from 500 on, or one that is not shared, its client gets
	// that, and the others get the old answer to its end. The next request runs after ErrorFor, or if an
	// answer was not shared, after Keep, at most 2s. Shared answers then have the header Age, by the
	// clocks of the processes. It needs a Keep, is at least 1ms and at most an hour. 0: it never is.
	Stale time.Duration
	// MaxAnswer is the largest body of an answer that is shared, in bytes. It counts towards the budget
	// for bodies; see guard.SetBodyBudget. 0: 1 MiB.
	MaxAnswer int64
	// Limit is how many requests run at once in all processes if answers are not shared. The others
	// wait for the rest of WaitTime. The run whose answer was not shared is one more. 0: no bound.
	Limit int
	// Codec seals answers, such as idempotency.AEAD. nil: Redis sees them.
	Codec idempotency.Codec
	// Unmarked leaves out the header Reqlock-Shared: 1 of shared answers.
	Unmarked bool

	// FailOpen runs each request for itself if Redis is unavailable. It is logged and observed.
	FailOpen bool
	// ErrorHandler answers refusals. err is a *guard.Error. nil: guard.WriteProblem.
	ErrorHandler func(w http.ResponseWriter, r *http.Request, err error)
	// Logger logs what operators need to know. nil: slog.Default(). Keys are never logged.
	Logger *slog.Logger
	// Observe is called with the outcome of every request that may share. For a shared answer, Err
	// matches ErrShared. If the answer of a run was not shared, Err has a *NotShared, and so has that of
	// requests which ran for themselves for that reason.
	Observe func(r *http.Request, o guard.Outcome)
}

// Everyone is a Config.User for answers that do not depend on who asks. All users share them.
func Everyone(*http.Request) (string, error) { return "everyone", nil }

// ErrInvalidConfig matches the errors of Config.Validate.
var ErrInvalidConfig = errors.New("reqlock: coalesce: invalid Config")

// ErrShared matches the Err of a guard.Outcome if the request got the answer of another one.
var ErrShared = errors.New("reqlock: coalesce: answered with the answer of another request")

const (
	defaultMaxAnswer  = 1 << 20
	defaultMaxWaiters = 1024
)

// Validate reports everything in the Config that can never work.
func (c Config) Validate() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	for _, name := range c.Vary {
		refuse(name == "*" || !request.IsToken(name), "Vary has %q; use names of headers, such as Accept-Language", name)
	}
	refuse(c.Key != nil && c.Policy != nil, "both Key and Policy are set; a policy decides on the key, so leave out one of them")
	refuse(c.Unsafe != "" && c.Key == nil && c.Policy == nil, "Unsafe is set and Key is nil; with a body, use a key from it, such as keyfuncs.BodyHash()")
	refuse(c.MaxWaiters < -1, "MaxWaiters is %d; use 0 for %d, -1 for no bound, or a number of requests", c.MaxWaiters, defaultMaxWaiters)
	refuse(c.Keep != 0 && c.Keep < time.Millisecond || c.Keep > mostKeep, "Keep is %s; use 0 for %s, or 1ms to %s", c.Keep, defaultKeep, mostKeep)
	refuse(c.Stale != 0 && c.Stale < time.Millisecond || c.Stale > mostKeep, "Stale is %s; use 0 for none, or 1ms to %s", c.Stale, mostKeep)
	refuse(c.Stale > 0 && c.Keep == 0, "Stale is %s and Keep is 0; set Keep, which says how long an answer is not stale", c.Stale)
	refuse(c.ErrorFor > 0 && c.ErrorFor < time.Millisecond || c.ErrorFor > mostKeep,
		"ErrorFor is %s; use 0 for %s, 1ms to %s, or -1 to share no errors", c.ErrorFor, defaultErrorFor, mostKeep)
	refuse(c.MaxAnswer < 0, "MaxAnswer is %d; use 0 for %d, or a number of bytes", c.MaxAnswer, defaultMaxAnswer)
	refuse(c.Limit < 0, "Limit is %d; use 0 for no bound, or a number of requests", c.Limit)
	problems = append(problems, c.guard().Validate())
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return nil
}

// withDefaults replaces zero values.
func (c Config) withDefaults() Config {
	c.WaitTime = cmp.Or(c.WaitTime, defaultWaitTime)
	c.MaxWaiters = cmp.Or(c.MaxWaiters, defaultMaxWaiters)
	c.Keep, c.ErrorFor = cmp.Or(c.Keep, defaultKeep), cmp.Or(c.ErrorFor, defaultErrorFor)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, defaultMaxAnswer)
	if c.Vary = slices.Clone(c.Vary); len(c.Vary) > 0 {
		for i, name := range c.Vary {
			c.Vary[i] = http.CanonicalHeaderKey(name)
		}
		slices.Sort(c.Vary)
		c.Vary = slices.Compact(c.Vary)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// guard returns the Config of the inner guard.
func (c Config) guard() guard.Config {
	return guard.Config{
		Policy: policy, WaitTime: c.WaitTime, LeaseTime: c.LeaseTime, FailOpen: c.FailOpen,
		ErrorHandler: c.ErrorHandler, Logger: c.Logger, Observe: c.observe(),
	}
}

// observe returns Observe, which learns that a request has run although it was not under the lock.
func (c Config) observe() func(*http.Request, guard.Outcome) {
	if c.Observe == nil {
		return nil
	}
	return func(r *http.Request, o guard.Outcome) {
		o.Ran = o.Ran || errors.As(o.Err, new(*NotShared))
		c.Observe(r, o)
	}
}
