package core

import (
	"context"
	"time"

	"github.com/reqlock/reqlock/core/internal/schedule"
)

// A vacancy is the place of a RedLock's member, which is acquired again when it was lost. It is
// scheduled in the alarms of its lock's client and runs on that client's background goroutines.
// Closing the client ends it, and so does the end of the set.
type vacancy struct {
	set     *set
	index   int
	lock    Locker
	c       *Client
	timeout time.Duration
	entry   schedule.Entry
}

// fillLaterLocked schedules the next attempt. A lock of an unknown client is not acquired again.
func (v *vacancy) fillLaterLocked() {
	if v.c != nil {
		v.c.alarms.Set(&v.entry, v, v.c.opts.WatchdogTimeout/3)
	}
}

// closeLocked cancels the next attempt.
func (v *vacancy) closeLocked() {
	if v.c != nil {
		v.c.alarms.Cancel(&v.entry)
	}
}

func (v *vacancy) ring() { v.c.background.Go(v.fill) }

// fill makes one attempt. It does not use the end of Acquire's context, because the lease may
// outlast that.
func (v *vacancy) fill() {
	s := v.set
	ctx, cancel := context.WithTimeout(withoutQueue(context.WithoutCancel(s.caller)), v.timeout)
	defer cancel()
	lease, err := acquireMember(ctx, v.lock, AcquireOptions{})
	if err != nil {
		s.mu.Lock()
		if s.wantsMembersLocked() {
			v.fillLaterLocked()
		}
		s.mu.Unlock()
		return
	}

	s.adopt(lease)
	s.mu.Lock()
	wanted := s.wantsMembersLocked()
	if wanted {
		s.members[v.index] = lease
	}
	s.mu.Unlock()
	switch {
	case !wanted:
		_ = lease.Release(ctx)
	case lease.Err() != nil: // possibly since before it was a member
		s.vacate(lease)
	}
}
