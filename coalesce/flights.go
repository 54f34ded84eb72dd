package coalesce

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core"
)

// flights are the names that requests of this process want now. For each, one request leads: it asks
// Redis, and runs or gets what another process left. The others wait until it lands.
//
//	(none) -> flying   join, by the request that leads
//	flying -> landed   land, once
type flights struct {
	mu     sync.Mutex
	byName map[string]*flight
}

// A flight ends when landed is closed. Its result is constant from then on.
type flight struct {
	name    string
	landed  chan struct{}
	waiting int // The mutex of flights guards it.
	result  landing
}

// A landing is what those who wait do: they send the answer, or run for themselves as it says; fail
// with err; or, with neither, one of them leads.
type landing struct {
	answer *answer
	err    error
}

// join returns the flight of a name, and whether the caller leads it. At most so many wait; -1: all.
func (s *flights) join(name string, most int) (f *flight, leads bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.byName[name]; f != nil {
		if most >= 0 && f.waiting >= most {
			return nil, false, core.ErrTooManyWaiters
		}
		f.waiting++
		return f, false, nil
	}
	if s.byName == nil {
		s.byName = make(map[string]*flight)
	}
	f = &flight{name: name, landed: make(chan struct{})}
	s.byName[name] = f
	return f, true, nil
}

// land ends a flight. Each of those who wait uses the answer, and so does the caller. Only the first
// call counts.
func (s *flights) land(f *flight, result landing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[f.name] != f {
		return
	}
	delete(s.byName, f.name)
	if result.answer != nil {
		result.answer.users = f.waiting + 1
	}
	f.result = result
	close(f.landed)
}

// wait waits until the flight lands, and takes the caller off it otherwise.
func (s *flights) wait(ctx context.Context, f *flight, deadline time.Time) (landing, error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	var err error
	select {
	case <-f.landed:
		return f.result, nil
	case <-timer.C:
		err = core.ErrNotAcquired
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	landed := s.byName[f.name] != f
	if !landed {
		f.waiting--
	}
	s.mu.Unlock()
	if landed {
		s.drop(f.result.answer)
	}
	return landing{}, err
}

// drop ends the use of an answer by one request; nil: there is none.
func (s *flights) drop(a *answer) {
	if a == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.users--; a.users == 0 && a.account != nil {
		a.account.Close()
	}
}
