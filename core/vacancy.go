package core

import (
	"context"
	"time"

	"github.com/reqlock/reqlock/core/internal/schedule"
)

// A vacancy is a place of a RedLock's set, to be filled again when its member was lost. It waits in the alarms of the client of its
// lock, on whose background goroutines it asks: closing that client ends it, as does the end of the set.
type vacancy struct {
	set     *set
	place   int
	lock    Locker
	c       *Client
	timeout time.Duration
	entry   schedule.Entry[alarm]
}

// fillLaterLocked sets the next attempt. A lock of an unknown client is not acquired again.
func (v *vacancy) fillLaterLocked() {
	if v.c != nil {
		v.c.alarms.Set(&v.entry, v, v.c.opts.WatchdogTimeout/3)
	}
}

// closeLocked calls the next attempt off.
func (v *vacancy) closeLocked() {
	if v.c != nil {
		v.c.alarms.Cancel(&v.entry)
	}
}

func (v *vacancy) ring() { v.c.background.Go(v.fill) }

// fill makes one attempt. The whole is held even where the context that it was acquired with has ended.
func (v *vacancy) fill() {
	s := v.set
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.caller), v.timeout)
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
		s.members[v.place] = lease
	}
	s.mu.Unlock()
	switch {
	case !wanted:
		_ = lease.Release(ctx)
	case lease.Err() != nil: // perhaps before it had the place
		s.vacate(lease)
	}
}
