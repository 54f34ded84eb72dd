package core

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/clock"
)

// A Hold is a lock that a client holds.
type Hold struct {
	Name      string        // the lock's name, as it was given to the client
	Key       string        // its name in Redis, after Options.NameMapper
	Kind      string        // one of Kinds
	Owner     string        // wire owner; the field in Redis, where ":write" follows that of a writer
	Count     int           // leases: how often the owner has entered the lock
	Held      time.Duration // since the lock was acquired
	Lease     time.Duration // the longest lease of them: LeaseTime, or Options.WatchdogTimeout
	Remaining time.Duration // until the lease ends unless it is prolonged, by the local deadline
	Token     uint64        // fencing token; 0: none
	Host      string        // wire owner of the hold that it entered as a guest; "": it is none
	Annotation
}

// A Wait is a caller in Acquire that does not have the lock yet.
type Wait struct {
	Name   string        // the lock's name, as it was given to the client
	Key    string        // its name in Redis, after Options.NameMapper
	Kind   string        // one of Kinds
	Owner  string        // of a fair lock: the wire owner, which has the place in the queue of Redis
	Place  int           // among the callers of this process that wait for the name, from 1
	Waited time.Duration // since Acquire was called
	Left   time.Duration // until it gives up; WaitForever: no limit
	Annotation
}

// ID returns the part of each wire owner that names this client, such as web-1.4242.k3j9x2ab. See
// Options.ClientID.
func (c *Client) ID() string { return c.id }

// Service returns the name of the service for which the client verifies tokens; "": it verifies none. It
// is that of Options.Delegation.
func (c *Client) Service() string { return c.opts.Delegation.Name }

// Holds returns the locks that the client holds, by name. Holds of MultiLocks and RedLocks are
// listed as the locks they consist of.
func (c *Client) Holds() []Hold {
	var holds []Hold
	var callers []context.Context
	now, at := clock.Now(), c.clock()
	c.names.each(func(e *entry) {
		for h := e.holds.first; h != nil; h = h.next {
			if h.claim.State() == claim.Held {
				holds = append(holds, h.snapshotLocked(now, at))
				callers = append(callers, h.first.caller)
			}
		}
	})
	for i := range holds { // without the mutex, because Annotate is the application's
		holds[i].Annotation = c.annotate(callers[i])
	}
	slices.SortFunc(holds, func(a, b Hold) int { return strings.Compare(a.Name, b.Name) })
	return holds
}

func (h *hold) snapshotLocked(now clock.Moment, at clock.Instant) Hold {
	g := h.countsLocked()
	s := Hold{
		Name:  h.first.name,
		Key:   h.entry.key,
		Kind:  h.kind.Name,
		Owner: h.wire,
		Count: g.Total(),
		Held:  now.Since(h.first.acquired),
		Token: h.token,
		Host:  h.kind.Host,
	}
	if h.downgraded(g) {
		s.Kind = h.kind.Downgraded.Name
	}
	for l := h.leases; l != nil; l = l.next {
		s.Lease = max(s.Lease, l.duration())
		s.Remaining = max(s.Remaining, l.leftAtLocked(at))
	}
	return s
}

// Losses returns the last 32 locks that the client lost while they were held, newest first.
func (c *Client) Losses() []Loss { return c.losses.latest() }

// Waits returns the callers that wait in Acquire, by name and in the order of the queue.
func (c *Client) Waits() []Wait {
	var waits []Wait
	var callers []context.Context
	now := clock.Now()
	c.names.each(func(e *entry) {
		for i, w := range e.queue.Waiters() {
			waits = append(waits, w.Item.snapshotLocked(i+1, now))
			callers = append(callers, w.Item.ctx)
		}
	})
	for i := range waits {
		waits[i].Annotation = c.annotate(callers[i])
	}
	slices.SortStableFunc(waits, func(a, b Wait) int { return strings.Compare(a.Name, b.Name) })
	return waits
}

func (w *waiter) snapshotLocked(place int, now clock.Moment) Wait {
	s := Wait{
		Name:   w.name,
		Key:    w.entry.key,
		Kind:   w.kind.Name,
		Place:  place,
		Waited: now.Since(w.began),
		Left:   WaitForever,
	}
	if p := w.fairPlace(); p != nil {
		s.Owner = p.wire
	}
	if w.Deadline != 0 {
		s.Left = max(0, w.Deadline.Since(now))
	}
	return s
}
