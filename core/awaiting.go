package core

import (
	"context"
	"sync"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/redisop"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// latches has an awaited for each latch that callers of this client wait for.
type latches struct {
	eng *engine

	mu      sync.Mutex // guards all awaited of the client
	awaited map[string]*awaited
}

// An awaited is a latch with the callers that wait for it. One goroutine asks Redis for all of them:
// when a caller joins, when a message arrives or the subscription is confirmed, and now and then in
// between. It ends when no caller waits any more.
type awaited struct {
	of      *latches
	key     string
	changed chan struct{} // holds one poke: there may be news

	waiting map[*latchWaiter]bool // true: it counts towards MaxWaiting
	arrived uint64                // how many callers have joined

	channel *hub.Channel // nil: not subscribed yet; used by the goroutine only
}

// A latchWaiter is a caller of Await.
type latchWaiter struct {
	at      *awaited
	arrival uint64
	done    chan error // gives the result, once
}

func newLatches(eng *engine) *latches {
	return &latches{eng: eng, awaited: make(map[string]*awaited)}
}

// len returns how many callers wait.
func (s *latches) len() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.awaited {
		n += len(a.waiting)
	}
	return n
}

// join adds a caller to those that wait for a latch, and makes them look at its count.
func (s *latches) join(key string) (*latchWaiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.eng.state.Load() != open {
		return nil, ErrClosed
	}
	a := s.awaited[key]
	if a == nil {
		a = &awaited{of: s, key: key, changed: make(chan struct{}, 1), waiting: make(map[*latchWaiter]bool)}
		if !s.eng.background.Go(a.watch) {
			return nil, ErrClosed
		}
		s.awaited[key] = a
	}
	a.arrived++
	w := &latchWaiter{at: a, arrival: a.arrived, done: make(chan error, 1)}
	a.waiting[w] = false
	a.Notify()
	return w, nil
}

// wait waits for the result.
func (w *latchWaiter) wait(ctx context.Context) error {
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	s := w.at.of
	s.mu.Lock()
	defer s.mu.Unlock()
	w.at.removeLocked(w)
	return ended(ctx)
}

// removeLocked removes a caller, unless it has its result already.
func (a *awaited) removeLocked(w *latchWaiter) {
	inRoom, waits := a.waiting[w]
	if !waits {
		return
	}
	delete(a.waiting, w)
	if inRoom {
		a.of.eng.room.leave()
	}
	if len(a.waiting) == 0 {
		a.Notify()
	}
}

// endLocked gives a caller its result.
func (a *awaited) endLocked(w *latchWaiter, err error) {
	a.removeLocked(w)
	w.done <- err
}

// Notify handles a message, whatever it says, and a confirmation of the subscription.
func (a *awaited) Notify() {
	select {
	case a.changed <- struct{}{}:
	default: // a poke is pending
	}
}

// watch looks at the count until no caller waits for it.
func (a *awaited) watch() {
	eng := a.of.eng
	defer a.unsubscribe()
	polled, failures := false, uint8(0)
	for {
		arrived, ok := a.begin()
		if !ok {
			return
		}
		count, err := a.look()
		pause := eng.reliedPause(polled)
		switch {
		case err == redisop.ErrLeft:
			continue // the client is closing
		case err == nil:
			failures = 0
			a.tell(arrived, count == 0, nil)
		case heals(err):
			failures = min(failures+1, 100)
			pause = eng.outagePause(failures)
			a.tell(arrived, false, nil)
		default:
			a.tell(arrived, true, err)
		}
		a.subscribe()
		polled = !a.sleep(clock.In(pause))
		if polled && failures == 0 {
			eng.counters.polls.Add(1)
		}
	}
}

// begin returns which callers have joined before a look at the count. ok is false, and the awaited is
// gone, if there are none. When the client is closing, begin ends their wait.
func (a *awaited) begin() (arrived uint64, ok bool) {
	s := a.of
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-a.changed: // what there was to be seen, this look sees
	default:
	}
	if s.eng.state.Load() != open {
		for w := range a.waiting {
			a.endLocked(w, ErrClosed)
		}
	}
	if len(a.waiting) == 0 {
		delete(s.awaited, a.key)
		return 0, false
	}
	return a.arrived, true
}

// look asks Redis for the count. It returns redisop.ErrLeft if the client is closed meanwhile.
func (a *awaited) look() (count int, err error) {
	eng := a.of.eng
	reply, err := eng.ops.Op(lua.LatchCount(a.key), eng.opts.CommandTimeout).Run(redisop.Until{
		Context: context.Background(),
		Closing: eng.closing,
	})
	if err != nil {
		return 0, err
	}
	return lua.ReadLatchCount(reply)
}

// tell gives the callers that had joined before a look what it has found: their result if it is
// over, or else a place among those that wait. What was seen before a caller came does not concern
// it: there may be another count since.
func (a *awaited) tell(arrived uint64, over bool, err error) {
	s := a.of
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, inRoom := range a.waiting {
		switch {
		case w.arrival > arrived:
		case over:
			a.endLocked(w, err)
		case inRoom:
		default:
			if err := s.eng.room.enter(); err != nil {
				a.endLocked(w, err)
			} else {
				a.waiting[w] = true
			}
		}
	}
}

// subscribe makes messages poke the goroutine, if callers still wait.
func (a *awaited) subscribe() {
	s := a.of
	s.mu.Lock()
	waits := len(a.waiting) > 0
	s.mu.Unlock()
	if a.channel != nil || !waits {
		return
	}
	channel, confirmed := s.eng.hub.Subscribe(wire.LatchChannel(a.key), a)
	a.channel = channel
	if confirmed {
		a.Notify() // no confirmation will follow
	}
}

func (a *awaited) unsubscribe() {
	if a.channel != nil {
		a.of.eng.hub.Unsubscribe(a.channel, a)
	}
}

// sleep waits until there may be news, and returns true, or until it is time to poll. That is at
// until, or earlier if a message might not arrive.
func (a *awaited) sleep(until clock.Moment) (poked bool) {
	eng := a.of.eng
	for {
		pause := min(max(0, until.Since(clock.Now())), eng.pollPause())
		alarm := time.NewTimer(pause)
		select {
		case <-a.changed:
			alarm.Stop()
			return true
		case <-eng.closing:
			alarm.Stop()
			return true
		case <-alarm.C:
		}
		if until.Since(clock.Now()) <= 0 || a.channel == nil || !eng.hub.Hears(a.channel) {
			return false
		}
	}
}
