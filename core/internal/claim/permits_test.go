package claim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// A permitModel is a semaphore in Redis, the queue of one process, and what is under way between
// them. Time stands still, so nothing but the queue makes a waiter try.
type permitModel struct {
	*testing.T
	r        *rand.Rand
	q        Queue[int]
	free     int // The permits that are free in Redis.
	held     int // Those of this process that are not being released.
	others   int // Those of other processes.
	waiters  []*Waiter[int]
	underway []func() // each goes on with something that was sent, and may send more
	next     int
}

// send adds what happens later, in any order.
func (m *permitModel) send(f func()) { m.underway = append(m.underway, f) }

// ask lets every waiter plan that wants to.
func (m *permitModel) ask() {
	for _, w := range slices.Clone(m.waiters) {
		if step, _ := m.q.Next(w, now); step != Ask {
			continue
		}
		m.q.Asks(w, now)
		m.send(func() { // Redis executes the script
			granted := m.free > 0
			if granted {
				m.free--
			}
			free := m.free
			m.send(func() { // the reply arrives
				switch {
				case granted && w.State() != Asking: // it has left
					m.give()
				case granted:
					m.held++
					m.leaves(w)
					m.q.Granted(w, free, now, poll)
				case w.NoWait:
					m.leaves(w)
					m.q.Leave(w)
				default:
					m.q.Refused(w, poll)
				}
			})
		})
	}
}

func (m *permitModel) leaves(w *Waiter[int]) {
	m.waiters = slices.DeleteFunc(m.waiters, func(x *Waiter[int]) bool { return x == w })
}

// give frees a permit in Redis, which tells this process.
func (m *permitModel) give() {
	m.send(func() {
		m.free++
		m.send(func() { m.q.Message() })
	})
}

// release ends a hold of this process: it is handed over, or freed.
func (m *permitModel) release() {
	m.held--
	heir := m.q.Heir(now)
	if heir == nil {
		m.q.Freeing(now, 1)
		m.send(func() {
			m.free++
			m.send(func() { m.q.Message() })
			m.send(func() { m.q.Freed(now, OtherListeners) })
		})
		return
	}
	m.q.HandTo(heir, now, poll)
	m.send(func() { // the reply arrives
		here := heir.State() == Heir
		m.q.EndHandOver(heir)
		if !here { // it has left: its permit is freed
			m.give()
			m.q.Wake()
			return
		}
		m.held++
		m.leaves(heir)
		m.q.HandedOver(now)
		m.q.Granted(heir, 0, now, poll)
	})
}

func (m *permitModel) step() {
	switch n := m.r.IntN(10); {
	case n < 3 && len(m.waiters) < 12:
		w := &Waiter[int]{Item: m.next, Class: Counted, Limit: 1000, Together: int32(1 + m.r.IntN(4)), NoWait: m.r.IntN(8) == 0}
		m.next++
		if m.q.Join(w) == Admitted {
			m.waiters = append(m.waiters, w)
		}
	case n < 5 && m.held > 0:
		m.release()
	case n == 5 && m.others > 0:
		m.others--
		m.give()
	case n == 6 && m.free > 0:
		m.free--
		m.others++
	case n == 7 && len(m.waiters) > 0 && m.r.IntN(3) == 0:
		w := m.waiters[m.r.IntN(len(m.waiters))]
		m.leaves(w)
		m.q.Leave(w)
	default:
		m.goOn()
	}
	m.ask()
	m.check()
}

// goOn lets one of the things under way happen.
func (m *permitModel) goOn() {
	if len(m.underway) == 0 {
		return
	}
	i := m.r.IntN(len(m.underway))
	f := m.underway[i]
	m.underway = slices.Delete(m.underway, i, i+1)
	f()
}

// check fails the test unless the waiters at the front come first, and one of them hears what becomes
// free.
func (m *permitModel) check() {
	behind := slices.IndexFunc(m.q.waiters, func(w *Waiter[int]) bool { return w.state == Queued })
	if behind == 0 || behind > 0 && slices.ContainsFunc(m.q.waiters[behind:], (*Waiter[int]).atFront) ||
		behind > 0 && !slices.ContainsFunc(m.q.waiters[:behind], func(w *Waiter[int]) bool { return w.state != Heir }) {
		var states []string
		for _, w := range m.q.waiters {
			states = append(states, w.state.String())
		}
		m.Fatalf("the queue is %v", states)
	}
}

// When all that was sent has arrived, no waiter sleeps beside a free permit.
func TestCounted_Model(t *testing.T) {
	t.Parallel()
	for range 8 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0))
			for range 500 {
				m := &permitModel{T: t, r: r, free: 1 + r.IntN(4)}
				m.q.Init()
				for range 60 {
					m.step()
				}
				for len(m.underway) > 0 {
					m.goOn()
					m.ask()
					m.check()
				}
				// A pause that gives others the first chance ends without a message, too.
				if m.q.rotation.phase == pausing {
					m.q.rotation.mark = clock.Moment(0)
					m.ask()
					for len(m.underway) > 0 {
						m.goOn()
						m.ask()
					}
				}
				if m.free > 0 && len(m.waiters) > 0 {
					t.Fatalf("%d permits are free, and %d callers sleep, the first %s", m.free, len(m.waiters), m.waiters[0].state)
				}
			}
		})
	}
}
