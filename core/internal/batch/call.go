package batch

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// What is answered to a call that Redis did not answer.
var (
	// ErrClosed: the batcher was closed before the call was sent.
	ErrClosed = errors.New("the batcher is closed")
	// ErrUnsent: the deadline passed while the call was queued.
	ErrUnsent = errors.New("not sent in time: Redis did not answer what was sent before")
	// ErrUnanswered: the deadline passed after the call was sent. It may have been executed, or may yet be.
	ErrUnanswered = errors.New("no reply from Redis in time")
)

// A Purpose says which lane a call takes.
type Purpose int

const (
	Ordinary   Purpose = iota
	Replicated         // with Config.Acks, replicas must confirm what it has written
	Renewals           // likewise
	purposes
)

// A Call is one script call. Whoever sends it sets the exported fields. It can be sent again once its reply has been
// received, unless that was ErrUnanswered.
type Call struct {
	lua.Call
	Purpose  Purpose
	Deadline time.Time
	Reply    chan Reply // holds one

	lane       atomic.Pointer[lane]
	next, prev *Call // in the queue
	queued     bool
	over       bool // nobody waits for an answer any more
}

// A Reply is what became of a call.
type Reply struct {
	Value any
	Err   error
	// Unacked says, where replicas were asked for, why the write does not count as confirmed by them; nil: it does.
	Unacked error
}

// A queue is calls in the order in which they were sent.
type queue struct {
	first, last *Call
	len         int
	deadline    time.Time // no call's is earlier
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

// expire takes out the calls whose deadline has passed and answers them.
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
