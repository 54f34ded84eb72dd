package claim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

// A naive queue is a plain list of each waiter's history. It decides anew each time who may try, by
// a look at all waiters.
type naive struct {
	list    []*naiveWaiter
	last    clock.Moment // when an attempt last began, or was prompted
	refused *naiveRefusal
}

// A naiveRefusal is the latest refusal, unless something may have changed since.
type naiveRefusal struct {
	at    clock.Moment
	class Class
}

type naiveWaiter struct {
	*Waiter[int]
	asked   bool // since it came to the front
	asking  bool
	offered bool
	called  bool         // there was a reason to try since the latest attempt began
	front   bool         // it could try before
	waited  bool         // it was refused, or joined behind others
	at      clock.Moment // when its latest attempt began, or it knew the lock to be held here
}

func (n *naive) find(w *Waiter[int]) *naiveWaiter {
	for _, x := range n.list {
		if x.Waiter == w {
			return x
		}
	}
	return nil
}

// mayAsk reports whether no waiter before w keeps it from trying.
func (n *naive) mayAsk(w *naiveWaiter) bool {
	if w.Class == RedisQueue {
		return true
	}
	for _, before := range n.list {
		if before == w {
			return true
		}
		if before.Class != Shared || w.Class != Shared {
			return false
		}
	}
	return false
}

// call gives all waiters that may try a reason to. Of RedisQueue waiters it calls only the first of
// all.
func (n *naive) call() {
	n.refused = nil
	for i, w := range n.list {
		if w.Class == RedisQueue && i > 0 || !n.mayAsk(w) {
			return
		}
		w.called = true
		if w.Class == RedisQueue {
			return
		}
	}
}

func (n *naive) remove(w *Waiter[int]) {
	n.list = slices.DeleteFunc(n.list, func(x *naiveWaiter) bool { return x.Waiter == w })
}

// settle makes waiters that may try from now on, and are told enough, not try.
func (n *naive) settle() {
	for _, x := range n.list {
		if x.waited && !x.asked && n.mayAsk(x) && n.toldEnough(x) && !x.front {
			x.asked, x.at, x.called = true, n.refused.at, false
		}
		x.front = n.mayAsk(x)
	}
}

// asks reports whether a waiter must try now.
func (n *naive) asks(w *naiveWaiter, at clock.Moment) bool {
	if !n.mayAsk(w) || w.asking || w.offered {
		return false
	}
	switch told := n.toldEnough(w); {
	case !w.asked:
		return true
	case w.Deadline == 0 || w.Deadline > at:
		return w.called || w.asked && (w.PollAt <= at || w.Every > 0 && w.at.Add(w.Every) <= at && n.first(w))
	default: // once more at the end
		return w.at < w.Deadline && !told && n.first(w)
	}
}

// first reports whether a waiter tries without a reason of its own.
func (n *naive) first(w *naiveWaiter) bool { return w.Class != RedisQueue || n.list[0] == w }

// toldEnough reports whether the refusal of another is the last answer that a waiter needs.
func (n *naive) toldEnough(w *naiveWaiter) bool {
	r := n.refused
	return w.waited && r != nil && r.class == w.Class && w.Deadline != 0 && w.Deadline.Since(r.at) <= freshness
}

// prompts reports whether a waiter that may not try must make those try that may.
func (n *naive) prompts(w *naiveWaiter, at clock.Moment) bool {
	waits := w.Every > 0 && n.last.Add(w.Every) <= at && (w.Deadline == 0 || w.Deadline > at)
	if w.Class == RedisQueue {
		return waits && w.state == Asleep && !n.first(w) && !n.asks(w, at)
	}
	return waits && !n.mayAsk(w)
}

// A modelTest runs random events through a Queue and a naive one.
type modelTest struct {
	*testing.T
	r      *rand.Rand
	q      *Queue[int]
	n      *naive
	at     clock.Moment
	events []string
	before map[*Waiter[int]]answer // what each waiter did before the event
}

// scale makes the times of the model comparable to freshness.
const scale = 5 * time.Millisecond

type answer struct {
	step Step
	end  clock.Moment // of a sleep
}

func (m *modelTest) answers() map[*Waiter[int]]answer {
	all := make(map[*Waiter[int]]answer)
	for _, w := range m.q.waiters {
		all[w] = m.answer(w)
	}
	return all
}

func (m *modelTest) answer(w *Waiter[int]) answer {
	step, d := m.q.Next(w, m.at)
	if step != Sleep {
		return answer{step: step}
	}
	return answer{step, m.at.Add(d)}
}

func (m *modelTest) fail(format string, args ...any) {
	m.Helper()
	events := m.events[max(0, len(m.events)-30):]
	m.Fatalf("%s\nafter %v", fmt.Sprintf(format, args...), events)
}

// check compares the queues. woken are the waiters that the event returned. Those in self run on
// their own.
func (m *modelTest) check(woken []*Waiter[int], self ...*Waiter[int]) {
	m.Helper()
	m.n.settle()
	asking := map[Class]int{}
	for i, w := range m.q.waiters {
		x := m.n.list[i]
		if x.Waiter != w {
			m.fail("place %d: waiter %d, want %d", i, w.Item, x.Item)
		}
		if w.atFront() != m.n.mayAsk(x) {
			m.fail("waiter %d is %s, may ask: %v", w.Item, w.state, m.n.mayAsk(x))
		}
		if w.state == Asking {
			asking[w.Class]++
		}
		now := m.answer(w)
		if prompts := m.n.prompts(x, m.at); (now.step == Prompt) != prompts {
			m.fail("waiter %d is %s and prompts: %v, want %v", w.Item, w.state, now.step == Prompt, prompts)
		}
		if asks := m.n.asks(x, m.at); (now.step == Ask) != asks && m.q.rotation.phase == running {
			m.fail("waiter %d is %s and asks: %v, want %v", w.Item, w.state, now.step == Ask, asks)
		}
		was, known := m.before[w]
		sooner := known && was.step == Sleep && (now.step != Sleep || now.end < was.end)
		if sooner && !slices.Contains(woken, w) && !slices.Contains(self, w) {
			m.fail("waiter %d slept until %d, has something to do (%d until %d), and was not woken", w.Item, was.end, now.step, now.end)
		}
	}
	if len(m.q.waiters) != len(m.n.list) {
		m.fail("%d waiters, want %d", len(m.q.waiters), len(m.n.list))
	}
	if asking[Exclusive] > 1 || asking[Exclusive] > 0 && asking[Shared] > 0 {
		m.fail("%d exclusive and %d shared waiters ask together", asking[Exclusive], asking[Shared])
	}
}

func (m *modelTest) event(format string, args ...any) {
	m.events = append(m.events, fmt.Sprintf(format, args...))
}

// pick returns one of the waiters in a state, or nil.
func (m *modelTest) pick(states ...State) *Waiter[int] {
	var all []*Waiter[int]
	for _, w := range m.q.waiters {
		if slices.Contains(states, w.state) {
			all = append(all, w)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[m.r.IntN(len(all))]
}

func (m *modelTest) step(id int, classes []Class) {
	m.before = m.answers()
	switch m.r.IntN(14) {
	case 0, 1, 2:
		w := &Waiter[int]{Item: id, Class: classes[m.r.IntN(len(classes))], Limit: 8}
		if m.r.IntN(3) == 0 {
			w.Deadline = m.at.Add(time.Duration(1+m.r.IntN(50)) * scale)
			w.Every = time.Duration(m.r.IntN(25)) * scale
		}
		m.event("join %d class %d", id, w.Class)
		if len(m.n.list) == 0 {
			m.n.refused = nil
		}
		if m.q.Join(w) == Admitted {
			x := &naiveWaiter{Waiter: w}
			m.n.list = append(m.n.list, x)
			x.waited = !m.n.mayAsk(x)
		}
		m.check(nil)
	case 3, 4, 5: // a waiter runs
		w := m.pick(Ready, Asleep, Queued, Heir)
		if w == nil {
			return
		}
		step, _ := m.q.Next(w, m.at)
		switch step {
		case Ask:
			m.event("%d asks", w.Item)
			m.q.Asks(w, m.at)
			x := m.n.find(w)
			x.asking, x.asked, x.called = true, true, false
			x.at, m.n.last = m.at, m.at
			m.check(nil, w)
		case Prompt:
			m.event("%d prompts", w.Item)
			m.n.last = m.at
			m.n.call()
			m.check(m.q.Prompt(m.at), w)
		case GiveUp:
			m.event("%d gives up", w.Item)
			m.leave(w)
		}
	case 6, 7: // a reply
		w := m.pick(Asking)
		if w == nil {
			return
		}
		if m.r.IntN(3) > 0 {
			m.event("%d is refused", w.Item)
			pollAt := m.at.Add(time.Duration(1+m.r.IntN(40)) * scale)
			tooMany := m.q.Refused(w, pollAt)
			x := m.n.find(w)
			x.asking, x.waited, m.n.refused = false, true, nil
			if !x.called {
				m.n.refused = &naiveRefusal{x.at, x.Class}
			}
			for _, out := range tooMany {
				m.n.remove(out)
			}
			m.check(tooMany, w)
			return
		}
		m.grant(w)
	case 8:
		m.event("message")
		counts := m.q.rotation.phase == running || m.q.rotation.echoes == 0
		woken := m.q.Message()
		if counts {
			m.n.call()
		}
		m.check(woken)
	case 9: // a release, or a hand-over
		if w := m.q.Heir(m.at); w != nil && m.r.IntN(2) == 0 {
			m.event("offer to %d", w.Item)
			m.q.HandTo(w, m.at, m.at.Add(30*scale))
			m.n.find(w).offered = true
			m.check(nil)
			return
		}
		m.event("freeing")
		m.q.Freeing(m.at, m.r.IntN(2))
		m.n.refused = nil
		m.check(nil)
	case 10:
		others := Listeners(m.r.IntN(3))
		m.event("freed, others %d", others)
		rests := m.q.rotation.phase == yielding && others != NoListeners
		woken := m.q.Freed(m.at.Add(20*scale), others)
		if !rests {
			m.n.call()
		}
		m.check(woken)
	case 11: // an offer ends
		w := m.pick(Heir)
		if w == nil {
			return
		}
		x := m.n.find(w)
		m.q.EndHandOver(w)
		x.offered, x.asked = false, true
		if m.r.IntN(2) == 0 {
			m.event("the offer to %d fails", w.Item)
			m.check(nil, w)
			return
		}
		m.q.HandedOver(m.at)
		m.grant(w)
	case 12:
		if w := m.pick(Queued, Ready, Asking, Asleep, Heir); w != nil && m.r.IntN(2) == 0 {
			m.event("%d leaves", w.Item)
			m.leave(w)
			return
		}
		if m.r.IntN(4) > 0 {
			return
		}
		m.event("dismissal")
		out, woken := m.q.Dismiss(m.q.arrivals, func(w *Waiter[int]) bool { return w.Item%2 == 0 })
		m.n.refused = nil
		for _, w := range out {
			m.n.remove(w)
		}
		m.check(woken, out...)
	case 13:
		d := time.Duration(m.r.IntN(30)) * scale
		m.event("%d pass", d)
		m.at = m.at.Add(d)
		if _, over := m.q.rotation.pausesFor(m.at); over {
			m.q.Wake()
			m.n.call()
		}
		m.before = nil
		m.check(nil)
	}
}

// leave makes a waiter leave. What it knew is of use to others only if it slept.
func (m *modelTest) leave(w *Waiter[int]) {
	if x := m.n.find(w); x.called || x.asking || x.offered || m.n.mayAsk(x) && !x.asked {
		m.n.refused = nil
	}
	woken := m.q.Leave(w)
	m.n.remove(w)
	m.check(woken, w)
}

func (m *modelTest) grant(w *Waiter[int]) {
	m.event("%d is granted the lock", w.Item)
	pollAt := m.at.Add(30 * scale)
	if x := m.n.find(w); x.called || x.asking || x.offered {
		m.n.refused = nil
	}
	next, woken := m.q.Granted(w, 0, m.at, pollAt)
	m.n.remove(w)
	m.n.last = m.at
	if next != nil {
		x := m.n.find(next)
		if !x.asking && !x.offered {
			x.asked, x.called, x.at = true, false, m.at
		}
	}
	m.check(woken, w)
}

// The two queues agree on which waiters may try and which do, whatever happens. No waiter sleeps
// through an event that concerns it.
func TestModel(t *testing.T) {
	t.Parallel()
	for name, classes := range map[string][]Class{
		"exclusive":      {Exclusive},
		"read and write": {Exclusive, Shared, Shared},
		"fair":           {RedisQueue},
	} {
		for range 4 {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s/seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				m := &modelTest{T: t, r: rand.New(rand.NewPCG(seed, 0)), q: new(Queue[int]), n: new(naive), at: now}
				m.q.Init()
				for id := range 50_000 {
					m.step(id, classes)
				}
			})
		}
	}
}
