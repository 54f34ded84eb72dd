// Package redisop sends commands to Redis until their outcome is known. It knows commands, replies and servers, and nothing of
// locks.
package redisop

import (
	"fmt"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// An Op is one operation on Redis: a call that is sent again until its outcome is known or its time is over. It is used by one
// goroutine at a time.
//
//	prepared -> sent       by Run, RunHere
//	sent     -> answered   a reply that is not worth another try: the outcome is Executed, or NotExecuted
//	sent     -> prepared   no reply, or one that is worth another try: it is sent again after a pause
//	sent     -> timed out  the time is over: Unknown if a try may have been executed, or else NotExecuted
//	sent     -> left       the caller has left; Await tells the rest
type Op struct {
	r        *Runner
	call     batch.Call
	begun    time.Time     // the latest try
	sent     clock.Instant // the same, before it was queued
	inFlight bool

	err     error // of the latest try that has ended
	end     end   // how that ended
	stray   bool  // a try may have been executed, or may yet be, without our having read its reply
	unacked error // why the replicas do not have what the answered try wrote

	retryBusy bool // where Redis asks for another try
	retryAway bool // where Redis was not reached, or not as a master
}

// An Outcome is what became of an operation.
type Outcome int

const (
	NotExecuted Outcome = iota // no try was, and none will be
	Executed                   // a reply says so; an earlier try may still arrive, see Stray
	Unknown                    // a try may have been executed, or may yet be
)

// ops are those that are over. Each acquire and each release has one: to make them all anew would be a good part of what the
// garbage collector has to do for a lock.
var ops = sync.Pool{New: func() any { return new(Op) }}

// Op prepares an operation that begins now and takes no longer than timeout.
func (r *Runner) Op(call lua.Call, timeout time.Duration) *Op {
	now := time.Now()
	x := ops.Get().(*Op)
	x.r, x.begun, x.retryBusy = r, now, true
	x.call.Call, x.call.Deadline = call, now.Add(timeout)
	return x
}

// Recycle ends an operation of which nothing is to be asked any more, after Run has returned anything but ErrLeft. It need not be
// called.
func (x *Op) Recycle() {
	if x.isOver() {
		*x = Op{}
		ops.Put(x)
	}
}

// isOver reports whether the batcher has nothing of it under way any more.
func (x *Op) isOver() bool { return !x.inFlight && x.err != ErrTimeout }

// Replicated has the replicas asked, if the Runner is to ask them.
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

// Hasty returns a reply that asks for another try at once: the caller has a better idea than to repeat the same.
func (x *Op) Hasty() *Op {
	x.retryBusy = false
	return x
}

// UntilSent repeats a try that did not reach Redis, or reached a server that is no master, until the time is over. It is for
// commands of holders: after a failover, go-redis returns an old dial error for up to a second, and a release that gave up on it
// would leave the lock behind. An acquire does without, to fail at once while Redis is away.
func (x *Op) UntilSent() *Op {
	x.retryAway = true
	return x
}

// Call is the call that is sent.
func (x *Op) Call() *lua.Call { return &x.call.Call }

// Replace goes on with another call, in what is left of the time.
func (x *Op) Replace(call lua.Call) {
	x.call.Call, x.retryBusy = call, true
}

// Begun is when the latest try began.
func (x *Op) Begun() time.Time { return x.begun }

// Sent is when the latest try was queued, on both clocks.
func (x *Op) Sent() clock.Instant { return x.sent }

// InFlight reports whether a try is under way whose reply Await reads.
func (x *Op) InFlight() bool { return x.inFlight }

// Stray reports whether a try may have been executed, or may yet be, without our having read its reply.
func (x *Op) Stray() bool { return x.stray }

// Unreadable says that the reply could not be read: it may mean anything.
func (x *Op) Unreadable() { x.stray = true }

// Outcome is that of an operation that is over.
func (x *Op) Outcome() Outcome {
	switch {
	case x.err == nil && x.end == answered:
		return Executed
	case x.stray:
		return Unknown
	}
	return NotExecuted
}

// Busy reports whether Redis has asked for another try, last.
func (x *Op) Busy() bool { return x.end == busy }

// Failed reports whether the last reply was an error, after which something may have been written.
func (x *Op) Failed() bool { return x.end == failed }

// replies are channels that have given what they were for.
var replies = sync.Pool{New: func() any { return make(chan batch.Reply, 1) }}

// leastTry is the time that must be left for another try: one that ends without an answer would leave doubt, where there was
// none.
const leastTry = 20 * time.Millisecond

// Run returns the reply, or why there is none. When leave or closing is closed first it returns ErrLeft, and Await tells the rest.
// Either may be nil.
func (x *Op) Run(leave, closing <-chan struct{}) (any, error) {
	r, err := x.try(leave, closing)
	if err != nil {
		return nil, err
	}
	return x.follow(r, leave, closing)
}

// RunHere is Run for a caller that stays, and for whose reply others wait: it sends the first try itself if it can.
func (x *Op) RunHere() (any, error) {
	x.prepare()
	return x.follow(x.r.batcher.Do(&x.call, x.begun), nil, nil)
}

// try sends the call once.
func (x *Op) try(leave, closing <-chan struct{}) (batch.Reply, error) {
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
func (x *Op) follow(r batch.Reply, leave, closing <-chan struct{}) (any, error) {
	for try := 0; ; try++ {
		if value, err, done := x.read(r); done {
			return value, err
		}
		select {
		case <-time.After(min(time.Millisecond<<min(try, 7), 100*time.Millisecond, time.Until(x.call.Deadline))):
		case <-leave:
			return nil, ErrLeft
		case <-closing:
			return nil, ErrLeft
		}
		if time.Until(x.call.Deadline) < leastTry {
			x.r.health.saw(x, nil, x.err)
			return nil, x.err
		}
		x.begun = time.Now()
		var err error
		if r, err = x.try(leave, closing); err != nil {
			return nil, err
		}
	}
}

func (x *Op) send() {
	x.prepare()
	x.r.batcher.Send(&x.call, x.begun)
}

func (x *Op) prepare() {
	x.call.Reply = replies.Get().(chan batch.Reply)
	x.sent, x.inFlight = x.r.cfg.Clock(x.begun), true
}

// leave takes back a try that has not been sent yet.
func (x *Op) leave() error {
	if x.r.batcher.Withdraw(&x.call) {
		replies.Put(x.call.Reply)
		x.inFlight, x.err, x.end = false, ErrLeft, refused
	}
	return ErrLeft
}

// Await returns what became of a try that was in flight when the caller left. It repeats nothing.
func (x *Op) Await() (any, error) {
	if !x.inFlight {
		return nil, x.err
	}
	value, err, done := x.read(<-x.call.Reply)
	if !done {
		x.r.health.saw(x, nil, err)
	}
	return value, err
}

// read takes the reply of a try. done: there is nothing to repeat.
func (x *Op) read(r batch.Reply) (value any, err error, done bool) {
	x.inFlight = false
	replies.Put(x.call.Reply) // it gives one reply, and that was it
	x.err, x.end = x.r.Opaque(r.Err), endOf(r.Err)
	x.r.slots.lookAt(x.end, r.Err)
	x.unacked = nil
	if r.Unacked != nil {
		x.unacked = fmt.Errorf("%w: %v", ErrNotReplicated, r.Unacked)
	}
	x.stray = x.stray || x.end == failed || x.end == lost
	again := x.end == lost || x.end == busy && x.retryBusy || x.end == away && x.retryAway
	if !again {
		x.r.health.saw(x, r.Value, r.Err)
	}
	return r.Value, x.err, !again
}

// Unacked is why the replicas do not have what the answered try wrote; nil: they have, or were not asked.
func (x *Op) Unacked() error { return x.unacked }

// Proven is nil if the replicas have what the script says, or were not to be asked. A script that finds all as it should be writes
// nothing, and then the replicas are asked about nothing: where an earlier try, on another connection, may have written it, their
// answer to this one proves nothing.
func (x *Op) Proven() error {
	if x.unacked == nil && x.stray && x.r.cfg.Acks > 0 {
		return fmt.Errorf("%w: an earlier try was not answered", ErrNotReplicated)
	}
	return x.unacked
}
