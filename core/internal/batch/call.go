package batch

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// Errors of calls that Redis did not answer.
var (
	// ErrClosed: the batcher was closed before the call was sent.
	ErrClosed = errors.New("the batcher is closed")
	// ErrUnsent: the deadline passed while the call was queued, or no server for it was found.
	ErrUnsent = errors.New("not sent in time: Redis did not answer earlier commands")
	// ErrUnanswered: the deadline passed after the call was sent. Redis may have executed it, or
	// may still do so.
	ErrUnanswered = errors.New("no reply from Redis in time")
)

// Unsent returns an error that matches ErrUnsent, with the reason.
func Unsent(why error) error { return &unsentError{why} }

type unsentError struct{ why error }

func (e *unsentError) Error() string        { return e.why.Error() }
func (e *unsentError) Is(target error) bool { return target == ErrUnsent }
func (e *unsentError) Unwrap() error        { return e.why }

// A Purpose selects the lane of a call.
type Purpose int

const (
	Ordinary   Purpose = iota
	Replicated         // Replicas must confirm the write, if Config.Acks says so.
	Renewals           // Replicas must confirm these as well.
	purposes
)

// A Call is one script call. The sender sets the exported fields. It may send the call again after
// receiving its reply, unless that was ErrUnanswered.
type Call struct {
	lua.Call
	Purpose  Purpose
	Deadline time.Time
	Reply    chan Reply // buffered for one reply

	lane atomic.Pointer[lane]
	// next and prev are the neighbours in the queue.
	next, prev *Call
	queued     bool
	done       bool // timed out in flight; drop the reply
}

// A Reply is the result of a call.
type Reply struct {
	Value any
	Err   error
	// Unacked says why replicas did not confirm the write. nil means they did, or were not asked.
	Unacked error
}

// A queue holds calls in the order they were sent.
type queue struct {
	first, last *Call
	len         int
	deadline    time.Time // a lower bound on all deadlines
}

func (q *queue) push(c *Call) {
	c.queued = true
	c.prev, c.next = q.last, nil
	if q.last == nil {
		q.first, q.deadline = c, c.Deadline
	} else {
		q.last.next = c
	}
	q.last = c
	q.len++
	if c.Deadline.Before(q.deadline) {
		q.deadline = c.Deadline
	}
}

func (q *queue) remove(c *Call) {
	if c.prev == nil {
		q.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		q.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.queued, c.prev, c.next = false, nil, nil
	q.len--
}

// expire removes the calls whose deadline has passed and answers them with ErrUnsent.
func (q *queue) expire(now time.Time) {
	if q.len == 0 || now.Before(q.deadline) {
		return
	}
	var earliest time.Time
	for c := q.first; c != nil; {
		next := c.next
		if !now.Before(c.Deadline) {
			q.remove(c)
			c.Reply <- Reply{Err: ErrUnsent}
		} else if earliest.IsZero() || c.Deadline.Before(earliest) {
			earliest = c.Deadline
		}
		c = next
	}
	q.deadline = earliest
}
