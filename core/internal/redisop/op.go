// Package redisop sends calls to Redis until their outcome is known. It knows calls, replies and
// servers, but no locks.
package redisop

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// An Op is one operation on Redis: a call that is resent until its outcome is known or its deadline
// has passed. One goroutine at a time uses it.
type Op struct {
	r     *Runner
	call  batch.Call
	state state
	// first is when the operation began.
	first clock.Moment
	// begun is when the last try began, and sent is the same moment on both clocks.
	begun time.Time
	sent  clock.Instant

	// err and end say how the last try has ended.
	err error
	end end
	// earlier is how the last try that ended before the deadline has ended.
	earlier error
	// stray is true if a try without a conclusive reply may have been executed, or may be yet.
	stray bool
	// unacked is why the replicas did not confirm the answered try.
	unacked error

	// starved is true if the last try got no connection.
	starved bool
	// known is closed when it is known whether the server is silent. nil: it is not asked.
	known <-chan struct{}

	// stale is true if the last try met a connection that is not trusted.
	stale bool
	// hangUps counts tries on connections that the server closed before it answered at all.
	hangUps int
	// retryBusy allows a retry if the try ends busy.
	retryBusy bool
	// retryAway allows a retry if the try ends away.
	retryAway bool
}

// An Outcome is the result of an operation.
type Outcome int

const (
	NotExecuted Outcome = iota // No try was executed, and none will be.
	Executed                   // A try was executed, as the last reply says. An earlier try may still arrive: see TryUnanswered.
	Unknown                    // A try may have been executed, or may be yet.
)

// opPool reuses operations. Each acquire and each release has one, which would be much of the
// garbage that a lock creates.
var opPool = sync.Pool{New: func() any { return new(Op) }}

// Op prepares an operation whose deadline is timeout from now.
func (r *Runner) Op(call lua.Call, timeout time.Duration) *Op {
	now := time.Now()
	x := opPool.Get().(*Op)
	x.r, x.begun, x.first, x.retryBusy = r, now, clock.MomentOf(now), true
	x.call.Call, x.call.Deadline = call, now.Add(timeout)
	return x
}

// Recycle returns an operation to the pool. Callers may use it after Run has returned anything but
// ErrLeft, and must not use the operation afterwards.
func (x *Op) Recycle() {
	if x.isOver() {
		*x = Op{}
		opPool.Put(x)
	}
}

// isOver reports whether the batcher no longer uses the call.
func (x *Op) isOver() bool { return x.state == ended && x.err != ErrTimeout }

// Replicated makes the replicas confirm the call, if Config.Acks is set.
func (x *Op) Replicated() *Op {
	if x.r.cfg.Acks > 0 {
		x.call.Purpose = batch.Replicated
	}
	return x
}

// Renewing sends the call in the lane of renewals.
func (x *Op) Renewing() *Op {
	x.call.Purpose = batch.Renewals
	return x
}

// Hasty makes Run return at once if Redis asks for a retry, for a caller that has a better
// alternative.
func (x *Op) Hasty() *Op {
	x.retryBusy = false
	return x
}

// UntilSent makes Run retry until the deadline if Redis is not reached, or cannot serve the call
// now. It is for the commands of holders. After a failover, go-redis returns an old dial error for
// up to a second, and a release that gave up on that would leave the lock behind. An acquire fails
// at once instead.
func (x *Op) UntilSent() *Op {
	x.retryAway = true
	return x
}

// Call returns the call that is sent.
func (x *Op) Call() *lua.Call { return &x.call.Call }

// Replace sets another call to run before the same deadline.
func (x *Op) Replace(call lua.Call) {
	x.call.Call, x.retryBusy = call, true
	x.move(prepared)
}

// TryBegun returns when the last try began.
func (x *Op) TryBegun() time.Time { return x.begun }

// Sent returns when the last try was queued, on both clocks.
func (x *Op) Sent() clock.Instant { return x.sent }

// InFlight reports whether the caller has left a try in flight, whose reply Await reads.
func (x *Op) InFlight() bool { return x.state == left }

// TryUnanswered reports whether a try may have been executed, or may be yet, although its reply was
// lost or was an error of a kind that may follow a write.
func (x *Op) TryUnanswered() bool { return x.stray }

// Unreadable records that the caller could not parse the reply, which may mean anything.
func (x *Op) Unreadable() { x.stray, x.end = true, failed }

// Redial makes later operations on the server of this one use new connections: the one it was sent
// on leads to a replica.
func (x *Op) Redial() { x.r.batcher.Redial(&x.call) }

// Outcome returns the outcome of an operation that has ended.
func (x *Op) Outcome() Outcome {
	switch {
	case x.err == nil && x.end == answered:
		return Executed
	case x.stray:
		return Unknown
	}
	return NotExecuted
}

// Busy reports whether Redis answered the last try by asking for a retry.
func (x *Op) Busy() bool { return x.end == busy }

// Failed reports whether the last reply was an error of a kind that may follow a write.
func (x *Op) Failed() bool { return x.end == failed }

// replyPool reuses the channels of replies.
var replyPool = sync.Pool{New: func() any { return make(chan batch.Reply, 1) }}

// leastTry is the time that must be left for another try. A try that times out would make the
// outcome unknown, even if it was known before.
const leastTry = 20 * time.Millisecond

// mostHangUps is how often an operation tries a port that only closes connections. The Redis client
// dials as often.
const mostHangUps = 5

// An Until says when the caller of an operation leaves.
type Until = batch.Until

// Run sends the call, with retries, and returns the reply. If until is over first, Run returns
// ErrLeft, and Await reads the reply of a try in flight.
func (x *Op) Run(until Until) (any, error) {
	if x.call.Acquires() {
		if err := x.r.silent.refuse(&x.call); err != nil {
			x.err, x.end = err, away
			x.move(ended)
			x.r.health.observe(x, nil, err)
			return nil, err
		}
	}
	r, err := x.try(until)
	if err != nil {
		return nil, err
	}
	return x.follow(r, until)
}

// try sends the call once.
func (x *Op) try(until Until) (batch.Reply, error) {
	switch err := x.admit(until); err {
	case nil:
	case ErrLeft:
		x.err, x.end = ErrLeft, refused
		x.move(ended)
		return batch.Reply{}, ErrLeft
	default:
		x.prepare()
		return batch.Reply{Err: err}, nil
	}
	x.prepare()
	r, left := x.r.batcher.Do(&x.call, x.begun, until)
	if left {
		return r, x.leave()
	}
	return r, nil
}

// follow retries a call as long as its replies call for it. r is the first reply.
func (x *Op) follow(r batch.Reply, until Until) (any, error) {
	for try := 0; ; try++ {
		if value, err, done := x.read(r); done {
			x.awaitKnown(until)
			return value, err
		}
		pause := min(time.Millisecond<<min(try, 7), 100*time.Millisecond, time.Until(x.call.Deadline))
		if x.stale { // the next connection may be good
			pause = 0
		}
		select {
		case <-time.After(pause):
		case <-until.Done():
			x.move(ended)
			return nil, ErrLeft
		case <-until.Closing:
			x.move(ended)
			return nil, ErrLeft
		}
		if time.Until(x.call.Deadline) < leastTry {
			x.move(ended)
			x.r.health.observe(x, nil, x.blame(x.err))
			x.awaitKnown(until)
			return nil, x.failure()
		}
		x.begun = time.Now()
		var err error
		if r, err = x.try(until); err != nil {
			return nil, err
		}
	}
}

// awaitKnown waits until it is known whether the server of a failed attempt to acquire is silent, so
// that the caller's next attempt does not wait for it.
func (x *Op) awaitKnown(until Until) {
	if x.known == nil || !x.call.Acquires() {
		return
	}
	select {
	case <-x.known:
	case <-until.Done():
	case <-until.Closing:
	}
}

// admit waits until it is known whether the client fits the server, before a lock may be acquired.
// Otherwise locks whose keys happen to be on this node of a cluster would work.
func (x *Op) admit(until Until) error {
	if x.r.fit.known.Load() || !x.call.Acquires() {
		return nil
	}
	late := time.NewTimer(time.Until(x.call.Deadline))
	defer late.Stop()
	q := x.r.fit.ask()
	select {
	case <-q.done:
		x.begun = time.Now() // the batcher sets its timers by it
		return q.err
	case <-late.C:
		return batch.ErrUnsent
	case <-until.Done():
	case <-until.Closing:
	}
	return ErrLeft
}

func (x *Op) prepare() {
	x.call.Reply = replyPool.Get().(chan batch.Reply)
	x.sent = x.r.cfg.Clock(x.begun)
	x.move(sent)
}

// leave withdraws a try that has not been sent yet.
func (x *Op) leave() error {
	if !x.r.batcher.Withdraw(&x.call) {
		x.move(left)
		return ErrLeft
	}
	replyPool.Put(x.call.Reply)
	x.err, x.end = ErrLeft, refused
	x.move(ended)
	return ErrLeft
}

// Await returns the reply of the try that was in flight when the caller left. It does not retry.
func (x *Op) Await() (any, error) {
	if x.state != left {
		return nil, x.failure()
	}
	value, err, done := x.read(<-x.call.Reply)
	if !done {
		x.r.health.observe(x, nil, err)
	}
	return value, err
}

// read handles the reply of a try. done is false if the call should be retried.
func (x *Op) read(r batch.Reply) (value any, err error, done bool) {
	replyPool.Put(x.call.Reply) // no second reply will arrive on it
	r.Err = x.r.fit.judge(r.Err)
	if x.stale = errors.Is(r.Err, batch.ErrStale); !x.stale || x.err == nil { // nothing was asked
		x.err = x.r.Opaque(r.Err)
	}
	x.end = x.r.classify(r.Err).end
	if x.err != ErrTimeout {
		x.earlier = x.err
	}
	x.r.slots.refreshAfter(x.end, r.Err)
	x.unacked = nil
	if r.Unacked != nil {
		x.unacked = fmt.Errorf("%w: %v", ErrNotReplicated, r.Unacked)
	}
	x.stray = x.stray || x.end == failed || x.end == lost
	x.starved = false
	if (x.end == lost || x.end == away) && FaultOf(r.Err) == faultSilent {
		x.starved = x.r.batcher.Starved(&x.call, x.first)
		x.known = x.r.silent.note(&x.call, x.first, FaultOf(x.diagnose(r.Err)))
	}
	hungUp := errors.Is(r.Err, batch.ErrHungUp)
	if hungUp {
		x.hangUps++
	}
	again := hungUp && x.hangUps < mostHangUps || x.end == lost || x.end == moved || x.end == busy && x.retryBusy || x.end == away && x.retryAway
	if again && x.state == sent {
		x.move(prepared)
	} else {
		x.move(ended)
	}
	if !again {
		x.r.health.observe(x, r.Value, x.blame(r.Err))
	}
	return r.Value, x.failure(), !again
}

// shortTry is how long a try must have lasted, if others were answered before it, to show by its
// silence that Redis does not answer. The deadline cuts the last of many tries short.
const shortTry = 200 * time.Millisecond

// blame returns the error that says why the operation has failed, given that of its last try.
func (x *Op) blame(err error) error {
	late := err == batch.ErrUnanswered || err == batch.ErrUnsent || err == ErrTimeout
	if late && IsAnswer(x.earlier) && time.Since(x.begun) < shortTry {
		return x.earlier
	}
	return x.diagnose(err)
}

// diagnose tells a server that does not answer from a pool without a free connection.
func (x *Op) diagnose(err error) error {
	if x.starved && FaultOf(err) == faultSilent {
		return &FaultError{faultPoolEmpty, err}
	}
	return err
}

// failure returns the error of the last try. If that try was too late, the text says how an earlier
// one ended, which tells more: Redis may be loading. The error does not wrap it, because Redis did
// not answer last, unless there may be a primary elsewhere.
func (x *Op) failure() error {
	if x.err == ErrTimeout && errors.Is(x.earlier, ErrReadOnly) { // who fails open must know
		return fmt.Errorf("%w; an earlier try got: %w", ErrTimeout, x.earlier)
	}
	if x.err == ErrTimeout && x.earlier != nil {
		return fmt.Errorf("%w; an earlier try got: %v", ErrTimeout, x.earlier)
	}
	return x.diagnose(x.err)
}

// Unacked returns why the replicas did not confirm the answered try. nil means they did, or were
// not asked.
func (x *Op) Unacked() error { return x.unacked }

// Proven returns nil if the replicas have what the script reports, or need not confirm it. A script
// that finds its work done writes nothing, so acks for it prove nothing: an earlier try, on another
// connection, may have done the write.
func (x *Op) Proven() error {
	if x.unacked == nil && x.stray && x.r.cfg.Acks > 0 {
		return fmt.Errorf("%w: an earlier try was not answered", ErrNotReplicated)
	}
	return x.unacked
}
