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
	arrange func(fx *fixture, s *testServer)
	request func(s *testServer) answer
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
	check func(fx *fixture, a answer)
}

var refusalTable = []refusal{
	{
		name:    "locked",
		arrange: func(fx *fixture, s *testServer) { fx.mustHold(lockName) },
		status:  409, problem: "locked", retry: "1",
	},
	{
		name:    "locked, with a hint of its own",
		config:  func(cfg *guard.Config) { cfg.RetryAfter = 2100 * time.Millisecond },
		arrange: func(fx *fixture, s *testServer) { fx.mustHold(lockName) },
		status:  409, problem: "locked", retry: "3",
	},
	{
		name:    "wait timeout",
		config:  func(cfg *guard.Config) { cfg.WaitTime = 30 * time.Millisecond },
		arrange: func(fx *fixture, s *testServer) { fx.mustHold(lockName) },
		status:  409, problem: "wait-timeout", retry: "1",
	},
	{
		name:    "queue full",
		config:  func(cfg *guard.Config) { waits(cfg); cfg.MaxWaiters = 1 },
		arrange: func(fx *fixture, s *testServer) { fx.mustHold(lockName); fx.queue(s, 1) },
		status:  503, problem: "queue-full", retry: "1",
	},
	{
		name: "Redis is down",
		arrange: func(fx *fixture, s *testServer) {
			fx.redis.Kill(fx.T)
			fx.ends = append(fx.ends, func() { fx.redis.Restart(fx.T) })
		},
		status: 503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name:  "Redis does not answer",
		setup: []func(*setup){commandTimeout(2 * time.Second)},
		arrange: func(fx *fixture, s *testServer) {
			fx.redis.Freeze(fx.T)
			fx.ends = append(fx.ends, func() { fx.redis.Thaw(fx.T) })
		},
		status: 503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name: "Redis dies while requests wait",
		// The doubtful command takes this long.
		setup:   []func(*setup){commandTimeout(5 * time.Second)},
		config:  waits,
		arrange: func(fx *fixture, s *testServer) { fx.mustHold(lockName) },
		request: func(s *testServer) answer {
			waiter := s.startGet(order)
			s.fx.eventually("a request waits", func() bool { return s.fx.locks.Stats().Waiting == 1 })
			s.fx.redis.Kill(s.fx.T)
			s.fx.ends = append(s.fx.ends, func() { s.fx.redis.Restart(s.fx.T) })
			second := s.startGet(order) // waits behind the first, or fails by itself
			second.mustGetAnswer()
			s.fx.outcome()
			return waiter.mustGetAnswer()
		},
		status: 503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name:    "Redis refuses",
		setup:   []func(*setup){proxied},
		arrange: func(fx *fixture, s *testServer) { fx.replyToScripts(outOfMemory) },
		status:  503, problem: "backend-unavailable", retry: "1", backend: true,
	},
	{
		name:  "the server is a replica, whose primary may grant the lock to others",
		setup: []func(*setup){proxied, commandTimeout(time.Second)},
		arrange: func(fx *fixture, s *testServer) {
			fx.replyToScripts("-READONLY You can't write against a read only replica.\r\n")
		},
		status: 503, problem: "backend-unavailable", retry: "1",
	},
	{
		name:  "the Redis user lacks a permission",
		setup: []func(*setup){proxied},
		arrange: func(fx *fixture, s *testServer) {
			fx.replyToScripts("-NOPERM User orders has no permissions to run the 'evalsha' command\r\n")
		},
		status: 500, problem: "misconfigured", logged: "docs/guides/operations.md",
		cause: core.ErrMisconfigured,
	},
	{
		name:    "Redis answers nonsense",
		setup:   []func(*setup){proxied},
		arrange: func(fx *fixture, s *testServer) { fx.replyToScripts("$5\r\nhello\r\n") },
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
		arrange: func(fx *fixture, s *testServer) {
			fx.proxy.OnMatch(1, isScript, redistest.Delay(50*time.Millisecond))
		},
		status: 503, problem: "backend-unavailable", retry: "1",
	},
	{
		name: "shutting down",
		arrange: func(fx *fixture, s *testServer) {
			if err := fx.locks.Close(fx.Context()); err != nil {
				fx.Fatal(err)
			}
		},
		status: 503, problem: "shutting-down", retry: "1",
	},
	{
		name:    "shutting down while the request waits",
		config:  waits,
		arrange: func(fx *fixture, s *testServer) { fx.mustHold(lockName) },
		request: func(s *testServer) answer {
			waiter := s.startGet(order)
			s.fx.eventually("a request waits", func() bool { return s.fx.locks.Stats().Waiting == 1 })
			if err := s.fx.locks.Close(s.fx.Context()); err != nil {
				s.fx.Fatal(err)
			}
			return waiter.mustGetAnswer()
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
		request: func(s *testServer) answer {
			r := s.newRequest(http.MethodGet, order, nil)
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
		name:   "body cannot be read",
		config: func(cfg *guard.Config) { cfg.BufferBody = 100 },
		request: func(s *testServer) answer {
			return s.raw("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\nnonsense\r\n")
		},
		status: 400, problem: "body-unreadable",
	},
	{
		name:    "body too large, as it says itself",
		config:  func(cfg *guard.Config) { cfg.BufferBody = 100 },
		request: func(s *testServer) answer { return s.post(order, strings.Repeat("x", 101)) },
		status:  413, problem: "body-too-large",
	},
	{
		name:   "body too large, as it turns out",
		config: func(cfg *guard.Config) { cfg.BufferBody = 100 },
		request: func(s *testServer) answer {
			return s.send(s.newRequest(http.MethodPost, order, io.MultiReader(strings.NewReader(strings.Repeat("x", 101)))))
		},
		status: 413, problem: "body-too-large",
	},
	{
		name: "body too large for the key",
		config: keyedBy(func(r *http.Request) (string, error) {
			text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 100))
			return string(text), err
		}),
		request: func(s *testServer) answer { return s.post(order, strings.Repeat("x", 101)) },
		status:  413, problem: "body-too-large",
	},
	{
		name:   "no such wildcard",
		config: keyedBy(keyfuncs.PathValue("nope")),
		status: 500, problem: "misconfigured", logged: `are \"id\": use one of them in the key, or add \"nope\" to the pattern`,
	},
	{
		name: "the key of the lock is something else",
		arrange: func(fx *fixture, s *testServer) {
			fx.rdb.Set(fx.Context(), lockName, "a string", 0)
			fx.ends = append(fx.ends, func() { fx.rdb.Del(background, lockName) })
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
		check: func(fx *fixture, a answer) {
			const want = `{"type":"https://example.org/pay","title":"Pay first","status":402,"detail":"Then come back"}`
			if a.status != 402 || a.body != want || a.header.Get("Retry-After") != "90" || a.header.Get("Content-Type") != "application/problem+json" {
				fx.Errorf("answer %d %v %s", a.status, a.header, a.body)
			}
		},
	},
	{
		name:   "a policy answers by itself",
		config: decidedBy(func(*http.Request, *guard.Policy) error { return &guard.Error{Status: 429} }),
		status: 429,
		check: func(fx *fixture, a answer) {
			if a.status != 429 || a.body != `{"status":429}` || a.header.Get("Retry-After") != "" {
				fx.Errorf("answer %d %v %s", a.status, a.header, a.body)
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
			scenario{name: "refused/" + row.name, run: func(fx *fixture) { row.test(fx, false) }, setup: row.setup},
			scenario{name: "failing open/" + row.name, run: func(fx *fixture) { row.test(fx, true) }, setup: row.setup})
	}
	return list
}

func (row refusal) test(fx *fixture, failOpen bool) {
	var runs atomic.Int64
	s := fx.serveOrders(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		if _, ok := guard.LeaseFrom(r.Context()); ok {
			fx.Error("a handler that runs without a lock has a lease")
		}
		_, _ = io.WriteString(w, "done")
	}, func(cfg *guard.Config) {
		if row.config != nil {
			row.config(cfg)
		}
		cfg.FailOpen = failOpen
	})
	if row.arrange != nil {
		row.arrange(fx, s)
	}
	if row.request == nil {
		row.request = func(s *testServer) answer { return s.get(order) }
	}
	a, o := row.request(s), fx.outcome()
	if row.cause != nil {
		fx.wantErr("Outcome.Err", o.Err, row.cause)
	}

	if failOpen && row.backend {
		a.want(fx, http.StatusOK, "done")
		if !o.Ran || !o.FailedOpen || o.Err == nil {
			fx.Errorf("the outcome is %+v", o)
		}
		if fx.log.count("without a lock") == 0 {
			fx.Errorf("the log does not say that the handler ran without a lock: %s", fx.log.text())
		}
		return
	}
	if row.check != nil {
		row.check(fx, a)
	} else {
		a.wantProblem(fx, row.status, row.problem, row.retry)
	}
	if n := runs.Load(); n != 0 {
		fx.Errorf("the handler ran %d times", n)
	}
	var own *guard.Error
	if o.Ran || o.Status != row.status || o.FailedOpen || o.Held != 0 || !errors.As(o.Err, &own) {
		fx.Errorf("the outcome is %+v, want status %d", o, row.status)
	}
	if text := fx.log.text(); (row.logged == "") != (text == "") || !strings.Contains(text, row.logged) {
		fx.Errorf("the log should hold %q:\n%s", row.logged, text)
	}
}

// queue lets n requests wait for the lock of order, until the test ends.
func (fx *fixture) queue(s *testServer, n int) {
	fx.Helper()
	for range n {
		s.startGet(order)
	}
	fx.eventually(fmt.Sprintf("%d requests wait", n), func() bool { return fx.locks.Stats().Waiting == n })
}

func isScript(args []string) bool {
	return strings.EqualFold(args[0], "EVALSHA") || strings.EqualFold(args[0], "EVAL")
}

// replyToScripts answers every script in place of Redis, until the test ends.
func (fx *fixture) replyToScripts(raw string) {
	rule := fx.proxy.OnEvery(isScript, redistest.ReplyWith(raw))
	fx.ends = append(fx.ends, rule.Remove)
}

// A noLocker returns neither a lease nor an error.
type noLocker struct{}

func (noLocker) Name() string                                                      { return "" }
func (noLocker) Acquire(context.Context, core.AcquireOptions) (*core.Lease, error) { return nil, nil }
