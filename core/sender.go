package core

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// A sender carries script calls to Redis. It never repeats one: that is for the exchange, which knows what a repeat means.
type sender interface {
	// send starts a call and returns at once. The reply arrives on call.reply, exactly once.
	send(*call)
	// close refuses further calls with ErrClosed and waits for those under way.
	close()
}

type call struct {
	lua.Call
	reply chan reply // holds one
}

type reply struct {
	value any
	err   error
}

// A plainSender sends each call by itself, on a goroutine of its own.
type plainSender struct {
	rdb     redis.UniversalClient
	timeout time.Duration
	calls   group
}

func (s *plainSender) send(c *call) {
	if !s.calls.Go(func() { c.reply <- s.do(c) }) {
		c.reply <- reply{err: ErrClosed}
	}
}

func (s *plainSender) close() { s.calls.close() }

func (s *plainSender) do(c *call) reply {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	r := s.process(ctx, c.EvalSHA())
	if hasCode(r.err, "NOSCRIPT") {
		r = s.process(ctx, c.Eval())
	}
	return r
}

func (s *plainSender) process(ctx context.Context, args []any) reply {
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	_ = s.rdb.Process(ctx, cmd) // the same error as cmd.Err
	value, err := cmd.Result()
	return reply{value, err}
}

// A onceCmd is never repeated by the library, which would do so without a word when a reply was lost.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// An exchange is one operation on Redis: a call, repeated until its outcome is known or its time is over.
type exchange struct {
	c        *Client
	call     call
	deadline time.Time
	inFlight bool
	last     error   // of the latest try whose end was heard of
	fate     fate    // the same, sorted
	sent     instant // before the latest try was queued
	// doubt is set when some try may have been executed, or may yet be, without our having heard of it.
	doubt bool
	// hasty has busy replies returned at once: whoever asks has a better idea than to repeat the same.
	hasty bool
}

var (
	errLeft    = errors.New("the caller has left")
	errTimeout = errors.New("no reply from Redis within CommandTimeout")
)

// exchange prepares an operation that takes no longer than timeout.
func (c *Client) exchange(lc lua.Call, timeout time.Duration) *exchange {
	return &exchange{c: c, call: call{lc, make(chan reply, 1)}, deadline: time.Now().Add(timeout)}
}

// run returns the reply, or why there is none. When leave or closing is closed first it returns errLeft, and await tells
// the rest; either may be nil.
func (x *exchange) run(leave, closing <-chan struct{}) (any, error) {
	timeout := time.NewTimer(time.Until(x.deadline))
	defer timeout.Stop()
	for try := 0; ; try++ {
		x.sent, x.inFlight = x.c.clock(), true
		x.c.sender.send(&x.call)
		select {
		case r := <-x.call.reply:
			if value, err, done := x.read(r); done {
				return value, err
			}
		case <-leave:
			return nil, errLeft
		case <-closing:
			return nil, errLeft
		case <-timeout.C:
			return nil, x.timedOut()
		}
		select {
		case <-time.After(min(time.Millisecond<<min(try, 7), 100*time.Millisecond)):
		case <-leave:
			return nil, errLeft
		case <-closing:
			return nil, errLeft
		case <-timeout.C:
			return nil, x.last
		}
	}
}

// await returns what became of a try that was in flight when run was left. It repeats nothing.
func (x *exchange) await() (any, error) {
	if !x.inFlight {
		return nil, x.last
	}
	select {
	case r := <-x.call.reply:
		value, err, _ := x.read(r)
		return value, err
	case <-time.After(time.Until(x.deadline)):
		return nil, x.timedOut()
	}
}

func (x *exchange) timedOut() error {
	x.doubt, x.fate = true, lost
	return errTimeout
}

// read takes the reply of a try. done says that there is nothing to repeat.
func (x *exchange) read(r reply) (value any, err error, done bool) {
	x.inFlight = false
	x.last, x.fate = opaque(r.err), fateOf(r.err)
	x.doubt = x.doubt || x.fate == failed || x.fate == lost
	return r.value, x.last, x.fate != lost && (x.fate != busy || x.hasty)
}

// A fate is what became of a call, as far as its error tells.
type fate int

const (
	answered fate = iota
	busy          // not executed, and worth another try
	refused       // not executed
	failed        // answered with an error: something may have been written
	lost          // not answered: it may have been executed
)

// notExecuted are the error replies that Redis gives before a script has written anything.
var notExecuted = []string{"NOSCRIPT", "MOVED", "ASK", "READONLY", "CLUSTERDOWN", "BUSY"}

func fateOf(err error) fate {
	var dial *net.OpError
	switch {
	case err == nil:
		return answered
	case hasCode(err, "TRYAGAIN", "LOADING"):
		return busy
	case hasCode(err, notExecuted...), wrongType(err):
		return refused
	case errors.Is(err, ErrClosed), errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return refused
	case errors.As(err, &dial) && dial.Op == "dial":
		return refused
	case isAnswer(err):
		return failed
	default:
		return lost
	}
}

// isAnswer reports whether an error is a reply of Redis.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

func hasCode(err error, codes ...string) bool {
	for _, code := range codes {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

// wrongType: the scripts look at the type of a key, and at what kind of lock it is, before they write. miniredis has text of
// its own before a code of Redis.
func wrongType(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (strings.Contains(answer.Error(), "WRONGTYPE ") || strings.HasPrefix(answer.Error(), "WRONGKIND "))
}

// opaque makes an error of the way to Redis one of ours: a time-out of ours must not look like the end of the caller's
// context, and a key of another type has an error of its own.
func opaque(err error) error {
	switch {
	case wrongType(err):
		return ErrWrongKind
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errors.New(err.Error())
	}
	return err
}
