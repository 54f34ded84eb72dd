package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// An exchange is one operation on Redis: a call, repeated until its outcome is known or its time is over.
type exchange struct {
	c        *Client
	call     batch.Call
	begins   time.Time // the latest try
	inFlight bool
	last     error         // of the latest try whose end was heard of
	fate     fate          // the same, sorted
	sent     clock.Instant // before the latest try was queued
	// doubt is set when some try may have been executed, or may yet be, without our having heard of it.
	doubt bool
	// hasty has busy replies returned at once: whoever asks has a better idea than to repeat the same.
	hasty bool
	// persistent repeats a try that was not sent as well; see untilSent.
	persistent bool
	// unacked says, of the try that was answered, why the replicas do not have what it wrote.
	unacked error
}

var (
	errLeft    = errors.New("the caller has left")
	errTimeout = errors.New("no reply from Redis within CommandTimeout")
	errAborted = errors.New("the Redis client gave up")
)

// exchanges are those that are over. Each acquire and each release has one: to make them all anew would be a good part of what the
// garbage collector has to do for a lock.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchange prepares an operation that begins now and takes no longer than timeout.
func (c *Client) exchange(lc lua.Call, timeout time.Duration) *exchange {
	now := time.Now()
	x := exchanges.Get().(*exchange)
	x.c, x.begins = c, now
	x.call.Call, x.call.Deadline = lc, now.Add(timeout)
	return x
}

// done ends an operation of which nothing is to be asked any more, after run has returned anything but errLeft. It need not be called.
func (x *exchange) done() {
	if x.over() {
		*x = exchange{}
		exchanges.Put(x)
	}
}

// over reports whether the batcher has nothing of it under way any more.
func (x *exchange) over() bool { return !x.inFlight && x.last != errTimeout }

// replies are channels that have given what they were for.
var replies = sync.Pool{New: func() any { return make(chan batch.Reply, 1) }}

// leastTry is the time that must be left for another try: one that ends without an answer would leave doubt, where there was
// none.
const leastTry = 20 * time.Millisecond

// run returns the reply, or why there is none. When leave or closing is closed first it returns errLeft, and await tells
// the rest; either may be nil.
func (x *exchange) run(leave, closing <-chan struct{}) (any, error) {
	r, err := x.try(leave, closing)
	if err != nil {
		return nil, err
	}
	return x.follow(r, leave, closing)
}

// runHere is run for a caller that stays, and for whose reply others wait: it sends the first try itself if it can.
func (x *exchange) runHere() (any, error) {
	x.prepare()
	return x.follow(x.c.batcher.Do(&x.call, x.begins), nil, nil)
}

// try sends the call once.
func (x *exchange) try(leave, closing <-chan struct{}) (batch.Reply, error) {
	x.send()
	if leave == nil && closing == nil {
		return <-x.call.Reply, nil
	}
	select {
	case r := <-x.call.Reply:
		return r, nil
	case <-leave:
	case <-closing:
	}
	return batch.Reply{}, x.leave()
}

// follow repeats a call for as long as its replies are worth it; r is the first.
func (x *exchange) follow(r batch.Reply, leave, closing <-chan struct{}) (any, error) {
	for try := 0; ; try++ {
		if value, err, done := x.read(r); done {
			return value, err
		}
		select {
		case <-time.After(min(time.Millisecond<<min(try, 7), 100*time.Millisecond, time.Until(x.call.Deadline))):
		case <-leave:
			return nil, errLeft
		case <-closing:
			return nil, errLeft
		}
		if time.Until(x.call.Deadline) < leastTry {
			x.c.health.saw(x, nil, x.last)
			return nil, x.last
		}
		x.begins = time.Now()
		var err error
		if r, err = x.try(leave, closing); err != nil {
			return nil, err
		}
	}
}

// release runs a release and reads its reply. In a slot on its way to another node, a release whose keys are not all there on one
// side is refused for as long as that takes, and some are never there: nobody may wait. Then the hash goes alone,
// and there is a rest, for which the call has to be sent once more.
func (x *exchange) release() (freed, rest bool, err error) {
	alone, divisible := x.call.WithoutRest()
	x.hasty = divisible && x.c.cluster
	answer, err := x.run(nil, nil)
	if x.hasty && x.fate == busy {
		x.call.Call, x.hasty, rest = alone, false, true
		answer, err = x.run(nil, nil)
	}
	if err == nil {
		freed, err = x.call.ReadFlag(answer)
	}
	return freed, rest, err
}

// replicated has the replicas asked, if there is a need to.
func (x *exchange) replicated() *exchange {
	if x.c.opts.ReplicaAcks > 0 {
		x.call.Purpose = batch.Replicated
	}
	return x
}

// untilSent repeats a try that did not reach Redis, or reached a server that is no master, until the time is over. It is for
// commands of holders: after a failover, go-redis returns an old dial error for up to a second, and a release that gave up on it
// would leave the lock behind. Acquire does without, to fail at once while Redis is away.
func (x *exchange) untilSent() *exchange {
	x.persistent = true
	return x
}

func (x *exchange) send() {
	x.prepare()
	x.c.batcher.Send(&x.call, x.begins)
}

func (x *exchange) prepare() {
	x.call.Reply = replies.Get().(chan batch.Reply)
	x.sent, x.inFlight = x.c.at(x.begins), true
}

// leave takes back a try that has not been sent yet.
func (x *exchange) leave() error {
	if x.c.batcher.Withdraw(&x.call) {
		replies.Put(x.call.Reply)
		x.inFlight, x.last, x.fate = false, errLeft, refused
	}
	return errLeft
}

// await returns what became of a try that was in flight when run was left. It repeats nothing.
func (x *exchange) await() (any, error) {
	if !x.inFlight {
		return nil, x.last
	}
	value, err, done := x.read(<-x.call.Reply)
	if !done {
		x.c.health.saw(x, nil, err)
	}
	return value, err
}

// read takes the reply of a try. done says that there is nothing to repeat.
func (x *exchange) read(r batch.Reply) (value any, err error, done bool) {
	x.inFlight = false
	replies.Put(x.call.Reply) // it gives one reply, and that was it
	x.last, x.fate = opaque(r.Err), fateOf(r.Err)
	x.c.lookAround(x.fate, r.Err)
	x.unacked = nil
	if r.Unacked != nil {
		x.unacked = fmt.Errorf("%w: %v", ErrNotReplicated, r.Unacked)
	}
	x.doubt = x.doubt || x.fate == failed || x.fate == lost
	again := x.fate == lost || x.fate == busy && !x.hasty || x.fate == away && x.persistent
	if !again {
		x.c.health.saw(x, r.Value, r.Err)
	}
	return r.Value, x.last, !again
}

// proven is nil if the replicas have what the script says, or nobody wants to know. A script that finds all as it should be
// writes nothing, and then the replicas are asked about nothing: where an earlier try, on another connection, may have
// written it, their answer to this one proves nothing.
func (x *exchange) proven() error {
	if x.unacked == nil && x.doubt && x.c.opts.ReplicaAcks > 0 {
		return fmt.Errorf("%w: an earlier try was not answered", ErrNotReplicated)
	}
	return x.unacked
}

// A fate is what became of a call, as far as its error tells.
type fate int

const (
	answered fate = iota
	busy          // not executed, and worth another try
	away          // not executed: Redis was not reached, or not as a master
	refused       // not executed, and will not be
	failed        // answered with an error: something may have been written
	lost          // not answered: it may have been executed
)

// Redis gives these error replies before a script has written anything.
var (
	tellsBusy = []string{"TRYAGAIN", "LOADING"}
	tellsAway = []string{"READONLY", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "BUSY", "NOSCRIPT"}
)

func fateOf(err error) fate {
	if err == nil {
		return answered
	}
	switch {
	case hasCode(err, tellsBusy...):
		return busy
	case hasCode(err, tellsAway...), isDial(err), errors.Is(err, batch.ErrUnsent), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return away
	case wrongType(err), errors.Is(err, batch.ErrClosed), errors.Is(err, redis.ErrClosed):
		return refused
	case isAnswer(err):
		return failed
	default:
		return lost
	}
}

// isDial reports whether there was no connection to send anything on.
func isDial(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
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
	case err == nil:
		return nil
	case err == batch.ErrClosed:
		return ErrClosed
	case err == batch.ErrUnanswered:
		return errTimeout
	case wrongType(err):
		return ErrWrongKind
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %v", errAborted, err)
	}
	return err
}
