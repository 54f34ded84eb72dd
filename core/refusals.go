package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A Refusal counts the calls of Acquire for one lock that returned without it.
type Refusal struct {
	Name string // the lock's name, as it was given to the client
	Key  string // its name in Redis
	Kind string // one of Kinds

	Refused  uint64 // calls that did not wait: WaitTime was 0, or too many waited already
	TimedOut uint64 // calls that waited for another owner until WaitTime or a deadline was over
	Left     uint64 // calls whose context ended before, such as that of a client that hung up
	Failed   uint64 // calls that failed with Err or an error like it

	First, Last time.Time // the first and the latest of these calls
	Err         error     // why the latest of Failed failed; nil: none
}

// How many locks a client remembers refusals of, and for how long after the last one.
const (
	mostRefusals = 64
	refusalAge   = 24 * time.Hour
)

// A refusalRecord has the locks that calls were refused last.
type refusalRecord struct {
	mu  sync.Mutex
	all map[refused]*Refusal
}

type refused struct{ key, kind string }

// add counts the end of a call without the lock. A full record forgets the lock that was refused
// longest ago.
func (r *refusalRecord) add(w *waiter, key string, err error, now time.Time) {
	end := w.ctx.Err()
	if end != nil && !errors.Is(err, end) {
		end = nil
	}
	switch {
	case errors.Is(err, ErrRecorded): // the caller has its answer
		return
	case end != nil && w.link != nil && w.link.PastQueue: // the RedLock no longer needs this member
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := refused{key, w.kind.Name}
	one := r.all[at]
	if one == nil || now.Sub(one.Last) > refusalAge {
		one = &Refusal{Name: w.name, Key: key, Kind: w.kind.Name, First: now}
		r.makeRoomLocked(now)
		if r.all == nil {
			r.all = make(map[refused]*Refusal)
		}
		r.all[at] = one
	}
	one.Last = now
	switch {
	case errors.Is(end, context.DeadlineExceeded) && errors.Is(err, ErrStillHeld),
		end == nil && errors.Is(err, ErrNotAcquired) && !w.NoWait:
		one.TimedOut++
	case end != nil:
		one.Left++
	case slices.ContainsFunc(refusing, func(target error) bool { return errors.Is(err, target) }):
		one.Refused++
	default:
		one.Failed++
		one.Err = err
	}
}

// refusing are the errors of calls that are refused at once.
var refusing = []error{ErrNotAcquired, ErrTooManyWaiters, ErrBound, ErrUnrecorded, ErrQuota}

// makeRoomLocked forgets refusals that are too old, and one more if there is no room.
func (r *refusalRecord) makeRoomLocked(now time.Time) {
	var oldest *Refusal
	for at, one := range r.all {
		switch {
		case now.Sub(one.Last) > refusalAge:
			delete(r.all, at)
		case oldest == nil || one.Last.Before(oldest.Last):
			oldest = one
		}
	}
	if len(r.all) >= mostRefusals {
		delete(r.all, refused{oldest.Key, oldest.Kind})
	}
}

// latest returns the refusals, the latest first.
func (r *refusalRecord) latest(now time.Time) (list []Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if now.Sub(one.Last) <= refusalAge {
			list = append(list, *one)
		}
	}
	slices.SortFunc(list, func(a, b Refusal) int { return b.Last.Compare(a.Last) })
	return list
}

// Refusals returns the last 64 locks that calls of Acquire returned without within a day, those of the
// latest calls first. It is what is left of an incident that is over.
func (c *Client) Refusals() []Refusal { return c.refusals.latest(time.Now()) }

// A Fault is a time in which Redis, or the way to it, failed operations of a client for one reason.
type Fault struct {
	Class  string // as in Counters.Errors
	Cause  string // why, such as "Redis is out of memory"
	Change string // what to change

	Began, Last time.Time // when the first and the latest operation failed
	Ended       time.Time // when one succeeded again; zero: none has yet
	Failed      uint64    // operations
	Err         error     // of the latest operation
}

// Faults returns the last fault of each cause, the latest first. Errors that a retry fixed are none.
func (c *Client) Faults() []Fault {
	var all []Fault
	for _, o := range c.ops.Outages() {
		all = append(all, Fault{
			Class: o.Class, Cause: o.Cause, Change: o.Change,
			Began: o.Began, Last: o.Last, Ended: o.Ended, Failed: o.Failed, Err: o.Err,
		})
	}
	return all
}
