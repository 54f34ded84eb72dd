package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A refusal is a row of the table of refused requests.
type refusal struct {
	name   string
	setup  []func(*setup)
	config func(*guard.Config)
	// arrange runs before request. A refusal without a request sends a GET of order.
	arrange func(e *env, s *site)
	request func(s *site) answer
	// The answer has this status, problem and Retry-After.
	status         int
	problem, retry string
	// The log has this text. "": nothing is logged.
	logged string
	// Redis is unavailable, so FailOpen runs the handler.
	backend bool
	// Outcome.Err matches cause. nil: it may be any error.
	cause error
	// check takes the place of the check of the problem.
	check func(e *env, a answer)
}

var refusalTable = []refusal{
	{
		name:    "locked",
		arrange: func(e *env, s *site) { e.hold(lockName) },
		status:  409, problem: "locked", retry: "1",
	},
	{
		name:    "locked, with a hint of its own",
		config:  func(cfg *guard.Config) { cfg.RetryAfter = 2100 * time.Millisecond },
		arrange: func(e *env, s *site) { e.hold(lockName) },
		status:  409, problem: "locked", retry: "3",
	},
	{
		name:    "wait timeout",
		config:  func(cfg *guard.Config) { cfg.WaitTime = 30 * time.Millisecond },
		arrange: func(e *env, s *site) { e.hold(lockName) },
		status:  409, problem: "wait-timeout", retry: "1",
	},
	{
		name:    "queue full",
		config:  func(cfg *guard.Config) { waits(cfg); cfg.MaxWaiters = 1 },
		arrange: func(e *env, s *site) { e.hold(lockName); e.queue(s, 1) },
		status:  503, problem: "queue-full", retry: "1",
	},
	{
		name:    "Redis is down",
		arrange: func(e *env, s *site) { e.redis.Kill(e.T); e.ends = append(e.ends, func() { e.redis.Restart(e.T) }) },
		status:  503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name:    "Redis does not answer",
		setup:   []func(*setup){commandTimeout(2 * time.Second)},
		arrange: func(e *env, s *site) { e.redis.Freeze(e.T); e.ends = append(e.ends, func() { e.redis.Thaw(e.T) }) },
		status:  503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name: "Redis dies while requests wait",
		// The doubtful command takes this long.
		setup:   []func(*setup){commandTimeout(5 * time.Second)},
		config:  waits,
		arrange: func(e *env, s *site) { e.hold(lockName) },
		request: func(s *site) answer {
			waiter := s.startGet(order)
			s.e.eventually("a request waits", func() bool { return s.e.locks.Stats().Waiting == 1 })
			s.e.redis.Kill(s.e.T)
			s.e.ends = append(s.e.ends, func() { s.e.redis.Restart(s.e.T) })
			second := s.startGet(order) // waits behind the first, or fails by itself
			second.answer()
			s.e.outcome()
			return waiter.answer()
		},
		status: 503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name:    "Redis refuses",
		setup:   []func(*setup){proxied},
		arrange: func(e *env, s *site) { e.replyToScripts(outOfMemory) },
		status:  503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name:    "the server is a replica, whose primary may grant the lock to others",
		setup:   []func(*setup){proxied, commandTimeout(time.Second)},
		arrange: func(e *env, s *site) { e.replyToScripts("-READONLY You can't write against a read only replica.\r\n") },
		status:  503, problem: "backend-unavailable", retry: "1",
	},
	{
		name:  "the Redis user lacks a permission",
		setup: []func(*setup){proxied},
		arrange: func(e *env, s *site) {
			e.replyToScripts("-NOPERM User orders has no permissions to run the 'evalsha' command\r\n")
		},
		status: 500, problem: "misconfigured", logged: "docs/operations.md",
		cause: core.ErrMisconfigured,
	},
	{
		name:    "Redis answers nonsense",
		setup:   []func(*setup){proxied},
		arrange: func(e *env, s *site) { e.replyToScripts("$5\r\nhello\r\n") },
		status:  503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name:   "replicas do not confirm it", // there are none
		setup:  []func(*setup){func(s *setup) { s.options.ReplicaAcks, s.options.ReplicaTimeout = 1, 50*time.Millisecond }},
		status: 503, problem: "backend-unavailable", retry: "1", backend: true,
		cause: core.ErrNotReplicated,
	},
	{
		name:   "the lease is over before the reply is there",
		setup:  []func(*setup){proxied, commandTimeout(patience)},
		config: func(cfg *guard.Config) { cfg.LeaseTime = 10 * time.Millisecond },
		arrange: func(e *env, s *site) {
			e.proxy.OnMatch(1, isScript, redistest.Delay(50*time.Millisecond))
		},
		status: 503, problem: "backend-unavailable", retry: "1",
	},
	{
		name: "shutting down",
		arrange: func(e *env, s *site) {
			if err := e.locks.Close(e.Context()); err != nil {
				e.Fatal(err)
			}
		},
		status: 503, problem: "shutting-down", retry: "1",
	},
	{
		name:    "shutting down while the request waits",
		config:  waits,
		arrange: func(e *env, s *site) { e.hold(lockName) },
		request: func(s *site) answer {
			waiter := s.startGet(order)
			s.e.eventually("a request waits", func() bool { return s.e.locks.Stats().Waiting == 1 })
			if err := s.e.locks.Close(s.e.Context()); err != nil {
				s.e.Fatal(err)
			}
			return waiter.answer()
		},
		status: 503, problem: "shutting-down", retry: "1",
	},
	{
		name:   "key missing",
		config: keyedBy(keyfuncs.Header("X-Key")),
		status: 400, problem: "key-missing",
	},
	{
		name:   "key empty",
		config: keyedBy(func(*http.Request) (string, error) { return "", nil }),
		status: 400, problem: "key-missing",
	},
	{
		name:   "key ambiguous",
		config: keyedBy(keyfuncs.Header("X-Key")),
		request: func(s *site) answer {
			r := s.request(http.MethodGet, order, nil)
			r.Header["X-Key"] = []string{key, key}
			return s.send(r)
		},
		status: 400, problem: "key-invalid",
	},
	{
		name:   "key function fails",
		config: keyedBy(func(*http.Request) (string, error) { return "", errors.New("out of order") }),
		status: 400, problem: "key-invalid", logged: "out of order",
	},
	{
		name:    "body cannot be read",
		config:  func(cfg *guard.Config) { cfg.BufferBody = 100 },
		request: func(s *site) answer { return s.raw("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\nnonsense\r\n") },
		status:  400, problem: "body-unreadable",
	},
	{
		name:    "body too large, as it says itself",
		config:  func(cfg *guard.Config) { cfg.BufferBody = 100 },
		request: func(s *site) answer { return s.post(order, strings.Repeat("x", 101)) },
		status:  413, problem: "body-too-large",
	},
	{
		name:   "body too large, as it turns out",
		config: func(cfg *guard.Config) { cfg.BufferBody = 100 },
		request: func(s *site) answer {
			return s.send(s.request(http.MethodPost, order, io.MultiReader(strings.NewReader(strings.Repeat("x", 101)))))
		},
		status: 413, problem: "body-too-large",
	},
	{
		name: "body too large for the key",
		config: keyedBy(func(r *http.Request) (string, error) {
			text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 100))
			return string(text), err
		}),
		request: func(s *site) answer { return s.post(order, strings.Repeat("x", 101)) },
		status:  413, problem: "body-too-large",
	},
	{
		name:   "no such wildcard",
		config: keyedBy(keyfuncs.PathValue("nope")),
		status: 500, problem: "misconfigured", logged: `are \"id\": use one of them in the key, or add \"nope\" to the pattern`,
	},
	{
		name: "the key of the lock is something else",
		arrange: func(e *env, s *site) {
			e.rdb.Set(e.Context(), lockName, "a string", 0)
			e.ends = append(e.ends, func() { e.rdb.Del(background, lockName) })
		},
		status: 500, problem: "misconfigured", logged: "Config.Name",
	},
	{
		name:   "Name makes an empty name",
		config: func(cfg *guard.Config) { cfg.Name = func(string) string { return "" } },
		status: 500, problem: "misconfigured", logged: "Config.Name",
	},
	{
		name: "Name makes a name that is too long",
		config: func(cfg *guard.Config) {
			cfg.Name = func(key string) string { return strings.Repeat(key, 64<<10) }
		},
		status: 500, problem: "misconfigured", logged: "Config.Name",
	},
	{
		name:   "Locker makes no lock",
		config: func(cfg *guard.Config) { cfg.Locker = func(*http.Request, string) core.Locker { return nil } },
		status: 500, problem: "misconfigured", logged: "Config.Locker",
	},
	{
		name:   "Locker makes a lock that gives no lease",
		config: func(cfg *guard.Config) { cfg.Locker = func(*http.Request, string) core.Locker { return noLocker{} } },
		status: 500, problem: "misconfigured", logged: "neither a lease nor an error",
	},
	{
		name:   "Policy without keys",
		config: decidedBy(func(*http.Request, *guard.Policy) error { return nil }),
		status: 500, problem: "misconfigured", logged: "neither Keys nor Lock nor Skip",
	},
	{
		name:   "Policy with an empty key",
		config: decidedBy(func(_ *http.Request, p *guard.Policy) error { p.Keys = []string{key, ""}; return nil }),
		status: 400, problem: "key-missing",
	},
	{
		name: "Policy with nothing but mistakes",
		config: decidedBy(func(_ *http.Request, p *guard.Policy) error {
			p.WaitTime, p.LeaseTime, p.Mode = core.WaitForever, time.Nanosecond, guard.Mode(77)
			return nil
		}),
		status: 500, problem: "misconfigured", logged: "LeaseTime is 1ns",
	},
	{
		name:   "Policy fails",
		config: decidedBy(func(*http.Request, *guard.Policy) error { return fmt.Errorf("no: %w", keyfuncs.ErrInvalid) }),
		status: 400, problem: "key-invalid",
	},
	{
		name:   "a key function answers by itself",
		config: keyedBy(func(*http.Request) (string, error) { return "", fmt.Errorf("wrapped: %w", paymentRequired) }),
		status: http.StatusPaymentRequired,
		check: func(e *env, a answer) {
			const want = `{"type":"https://example.org/pay","title":"Pay first","status":402,"detail":"Then come back"}`
			if a.status != 402 || a.body != want || a.header.Get("Retry-After") != "90" || a.header.Get("Content-Type") != "application/problem+json" {
				e.Errorf("answer %d %v %s", a.status, a.header, a.body)
			}
		},
	},
	{
		name:   "a policy answers by itself",
		config: decidedBy(func(*http.Request, *guard.Policy) error { return &guard.Error{Status: 429} }),
		status: 429,
		check: func(e *env, a answer) {
			if a.status != 429 || a.body != `{"status":429}` || a.header.Get("Retry-After") != "" {
				e.Errorf("answer %d %v %s", a.status, a.header, a.body)
			}
		},
	},
	{
		name:   "a key function answers without a status",
		config: keyedBy(func(*http.Request) (string, error) { return "", &guard.Error{Title: "Forgotten"} }),
		status: 500, problem: "misconfigured", logged: "Status",
	},
}

var paymentRequired = &guard.Error{
	Status: http.StatusPaymentRequired, Type: "https://example.org/pay", Title: "Pay first", Detail: "Then come back", RetryAfter: 90 * time.Second,
}

func keyedBy(key keyfuncs.Func) func(*guard.Config) {
	return func(cfg *guard.Config) { cfg.Key = key }
}

func decidedBy(policy guard.PolicyFunc) func(*guard.Config) {
	return func(cfg *guard.Config) { cfg.Key, cfg.Policy = nil, policy }
}

// refusals returns two scenarios for each row: with FailOpen, which must make no difference unless
// Redis is unavailable, and without.
func refusals() (list []scenario) {
	for _, row := range refusalTable {
		list = append(list,
			scenario{name: "refused/" + row.name, run: func(e *env) { row.test(e, false) }, setup: row.setup},
			scenario{name: "failing open/" + row.name, run: func(e *env) { row.test(e, true) }, setup: row.setup})
	}
	return list
}

func (row refusal) test(e *env, failOpen bool) {
	var runs atomic.Int64
	s := e.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		if _, ok := guard.LeaseFrom(r.Context()); ok {
			e.Error("a handler that runs without a lock has a lease")
		}
		_, _ = io.WriteString(w, "done")
	}, func(cfg *guard.Config) {
		if row.config != nil {
			row.config(cfg)
		}
		cfg.FailOpen = failOpen
	})
	if row.arrange != nil {
		row.arrange(e, s)
	}
	if row.request == nil {
		row.request = func(s *site) answer { return s.get(order) }
	}
	a, o := row.request(s), e.outcome()
	if row.cause != nil {
		e.wantErr("Outcome.Err", o.Err, row.cause)
	}

	if failOpen && row.backend {
		a.want(e, http.StatusOK, "done")
		if !o.Ran || !o.FailedOpen || o.Err == nil {
			e.Errorf("the outcome is %+v", o)
		}
		if e.log.count("without a lock") == 0 {
			e.Errorf("the log does not say that the handler ran without a lock: %s", e.log.text())
		}
		return
	}
	if row.check != nil {
		row.check(e, a)
	} else {
		a.wantProblem(e, row.status, row.problem, row.retry)
	}
	if n := runs.Load(); n != 0 {
		e.Errorf("the handler ran %d times", n)
	}
	var own *guard.Error
	if o.Ran || o.Status != row.status || o.FailedOpen || o.Held != 0 || !errors.As(o.Err, &own) {
		e.Errorf("the outcome is %+v, want status %d", o, row.status)
	}
	if text := e.log.text(); (row.logged == "") != (text == "") || !strings.Contains(text, row.logged) {
		e.Errorf("the log should hold %q:\n%s", row.logged, text)
	}
}

// queue lets n requests wait for the lock of order, until the test ends.
func (e *env) queue(s *site, n int) {
	e.Helper()
	for range n {
		s.startGet(order)
	}
	e.eventually(fmt.Sprintf("%d requests wait", n), func() bool { return e.locks.Stats().Waiting == n })
}

func isScript(args []string) bool {
	return strings.EqualFold(args[0], "EVALSHA") || strings.EqualFold(args[0], "EVAL")
}

// replyToScripts answers every script in place of Redis, until the test ends.
func (e *env) replyToScripts(raw string) {
	rule := e.proxy.OnEvery(isScript, redistest.ReplyWith(raw))
	e.ends = append(e.ends, rule.Remove)
}

// A noLocker returns neither a lease nor an error.
type noLocker struct{}

func (noLocker) Name() string                                                      { return "" }
func (noLocker) Acquire(context.Context, core.AcquireOptions) (*core.Lease, error) { return nil, nil }
