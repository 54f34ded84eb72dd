package claim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core/internal/clock"
)

const (
	now  clock.Moment = 1e9
	poll              = now + clock.Moment(time.Second)
)

// newQueue returns a queue that the waiters have joined. Each is named by its index.
func newQueue(t *testing.T, classes ...Class) (*Queue[int], []*Waiter[int]) {
	t.Helper()
	q := new(Queue[int])
	q.Init()
	var all []*Waiter[int]
	for _, c := range classes {
		all = append(all, join(t, q, c))
	}
	return q, all
}

func join(t *testing.T, q *Queue[int], c Class) *Waiter[int] {
	t.Helper()
	w := &Waiter[int]{Item: int(q.arrivals), Class: c, Limit: 1000}
	if a := q.Join(w); a != Admitted {
		t.Fatalf("waiter %d: %d, want it admitted", w.Item, a)
	}
	return w
}

// refuse makes waiters try and be refused.
func refuse(t *testing.T, q *Queue[int], waiters ...*Waiter[int]) {
	t.Helper()
	for _, w := range waiters {
		want(t, q, w, Ask)
		q.Asks(w, now)
		q.Refused(w, poll)
		want(t, q, w, Sleep)
	}
}

func want(t *testing.T, q *Queue[int], w *Waiter[int], step Step) {
	t.Helper()
	if got, d := q.Next(w, now); got != step {
		t.Fatalf("waiter %d is %s and does %d for %v, want %d", w.Item, w.state, got, d, step)
	}
}

func wantStates(t *testing.T, all []*Waiter[int], states ...State) {
	t.Helper()
	var got []State
	for _, w := range all {
		got = append(got, w.state)
	}
	if !slices.Equal(got, states) {
		t.Fatalf("the waiters are %v, want %v", got, states)
	}
}

func items(waiters []*Waiter[int]) (items []int) {
	for _, w := range waiters {
		items = append(items, w.Item)
	}
	return items
}

func wantWoken(t *testing.T, woken []*Waiter[int], want ...int) {
	t.Helper()
	if got := items(woken); !slices.Equal(got, want) {
		t.Fatalf("woken are %v, want %v", got, want)
	}
}

func TestJoin_WhoMayAsk(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		classes []Class
		states  []State
	}{
		{[]Class{Exclusive}, []State{Ready}},
		{[]Class{Exclusive, Exclusive}, []State{Ready, Queued}},
		{[]Class{Shared, Shared, Exclusive, Shared}, []State{Ready, Ready, Queued, Queued}},
		{[]Class{Exclusive, Shared, Shared}, []State{Ready, Queued, Queued}},
		{[]Class{RedisQueue, RedisQueue}, []State{Ready, Ready}},
		{[]Class{Exclusive, RedisQueue}, []State{Ready, Ready}},
	} {
		_, all := newQueue(t, tc.classes...)
		wantStates(t, all, tc.states...)
	}
}

func TestJoin_Refusals(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, Exclusive)
	if a := q.Join(&Waiter[int]{NoWait: true}); a != Behind {
		t.Errorf("a single attempt behind another waiter: %d, want it refused", a)
	}
	if a := q.Join(&Waiter[int]{Limit: 0}); a != Full {
		t.Errorf("Limit 0: %d, want Full", a)
	}
	// The first has not been refused yet, so it does not count as waiting.
	if a := q.Join(&Waiter[int]{Limit: 1}); a != Admitted {
		t.Errorf("Limit 1, none waiting: %d, want Admitted", a)
	}
	if a := q.Join(&Waiter[int]{Limit: 1}); a != Full {
		t.Errorf("Limit 1, one waiting: %d, want Full", a)
	}
}

// A first waiter counts as waiting from its refusal on. If that is one too many, the last waiter is
// removed.
func TestRefused_OneTooMany(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive)
	last := &Waiter[int]{Item: 1, Limit: 1}
	q.Join(last)
	q.Asks(all[0], now)
	out := q.Refused(all[0], poll)
	if !slices.Equal(items(out), []int{1}) || last.State() != Out || q.Len() != 1 {
		t.Errorf("%v are out, %d are left, want the second out", items(out), q.Len())
	}
}

func TestRefused_AsManyAsTheLimit(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive)
	last := &Waiter[int]{Item: 1, Limit: 2}
	q.Join(last)
	q.Asks(all[0], now)
	if out := q.Refused(all[0], poll); len(out) > 0 || last.State() != Queued {
		t.Errorf("%v are out, want both to stay: the limit is 2", items(out))
	}
}

func TestNext_Deadlines(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive, Exclusive)
	for _, w := range all {
		w.Deadline = now
	}
	want(t, q, all[0], Ask) // once, even after its deadline
	want(t, q, all[1], GiveUp)
	q.Asks(all[0], now)
	q.Refused(all[0], poll)
	want(t, q, all[0], GiveUp)
	all[0].Deadline = now + 5
	if step, d := q.Next(all[0], now); step != Sleep || d != 5 {
		t.Errorf("%d for %v, want a sleep until the deadline", step, d)
	}
}

// A wake-up during an attempt may be newer than the reply.
func TestAsks_WokenMeanwhile(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive)
	q.Asks(all[0], now)
	wantWoken(t, q.Message(), 0)
	q.Refused(all[0], poll)
	want(t, q, all[0], Ask)
	q.Asks(all[0], now)
	q.Refused(all[0], poll)
	want(t, q, all[0], Sleep)
	if step, _ := q.Next(all[0], poll); step != Ask {
		t.Errorf("%d at the time of the poll, want a question", step)
	}
}

// At its deadline a waiter at the front tries once more. Those whose deadlines pass soon after take
// the answer.
func TestNext_OnceMoreAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, class := range []Class{Exclusive, RedisQueue} {
		q, all := newQueue(t, class, class, class)
		for i, w := range all {
			w.Deadline = now.Add(2*time.Second + time.Duration(i)*freshness/2)
		}
		for _, w := range all {
			if step, _ := q.Next(w, now); step == Ask {
				q.Asks(w, now)
				q.Refused(w, now.Add(time.Hour))
			}
		}
		for i, steps := range [][]Step{{Ask, GiveUp}, {GiveUp}, {GiveUp}} {
			for _, want := range steps {
				if got, _ := q.Next(all[i], all[i].Deadline); got != want {
					t.Errorf("class %d, waiter %d, which is %s, does %d at its deadline, want %d", class, i, all[i].state, got, want)
				}
				if want == Ask {
					q.Asks(all[i], all[i].Deadline)
					q.Refused(all[i], now.Add(time.Hour))
				}
			}
			q.Leave(all[i])
		}
	}
}

// The answer of a waiter that has left is of no use if the lock may have been freed since.
func TestNext_OldAnswers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(q *Queue[int], first *Waiter[int]){
		"a message":       func(q *Queue[int], _ *Waiter[int]) { q.Message() },
		"another attempt": func(q *Queue[int], first *Waiter[int]) { q.Wake(); q.Asks(first, now) },
		"a message meanwhile": func(q *Queue[int], first *Waiter[int]) {
			q.Wake()
			q.Asks(first, now)
			q.Wake()
			q.Refused(first, poll)
		},
		"a release of this one": func(q *Queue[int], _ *Waiter[int]) { q.Freeing(now, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, all := newQueue(t, Exclusive, Exclusive)
			all[1].Deadline = now.Add(freshness)
			refuse(t, q, all[0])
			change(q, all[0])
			q.Leave(all[0])
			want(t, q, all[1], Ask)
		})
	}
}

// A queue tries as often as its most impatient waiter wants.
func TestNext_Every(t *testing.T) {
	t.Parallel()
	for _, class := range []Class{Exclusive, RedisQueue} {
		q, all := newQueue(t, class, class)
		for _, w := range all {
			if w.state == Ready {
				q.Asks(w, now)
				q.Refused(w, now.Add(time.Hour))
			}
		}
		all[1].Every = time.Second
		if step, d := q.Next(all[1], now.Add(time.Millisecond)); step != Sleep || d != time.Second-time.Millisecond {
			t.Errorf("class %d: the second does %d for %v", class, step, d)
		}
		if step, _ := q.Next(all[1], poll); step != Prompt {
			t.Errorf("class %d: the second does %d after a second, want it to prompt", class, step)
		}
		wantWoken(t, q.Prompt(poll), 0)
		want(t, q, all[0], Ask)
		if step, d := q.Next(all[1], poll); step != Sleep || d != time.Second {
			t.Errorf("class %d: the second does %d for %v after its prompt", class, step, d)
		}
		q.Asks(all[0], poll)
		q.Refused(all[0], now.Add(time.Hour))
		all[0].Every = 2 * time.Second
		if step, d := q.Next(all[0], poll); step != Sleep || d != 2*time.Second {
			t.Errorf("class %d: the first does %d for %v", class, step, d)
		}
		if step, _ := q.Next(all[0], poll.Add(2*time.Second)); step != Ask {
			t.Errorf("class %d: the first does %d after its time", class, step)
		}
	}
}

func TestWake_WhoAsks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		classes []Class
		woken   []int
	}{
		{nil, nil},
		{[]Class{Exclusive, Exclusive}, []int{0}},
		{[]Class{Shared, Shared, Exclusive}, []int{0, 1}},
		{[]Class{RedisQueue, RedisQueue}, []int{0}},
		{[]Class{Exclusive, RedisQueue}, []int{0}},
	} {
		q, _ := newQueue(t, tc.classes...)
		wantWoken(t, q.Wake(), tc.woken...)
	}
}

func TestCall_OneOfARemoteQueue(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, RedisQueue, RedisQueue)
	refuse(t, q, all...)
	q.Call(all[1])
	want(t, q, all[0], Sleep)
	want(t, q, all[1], Ask)
}

func TestLeave_Promotes(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive, Shared, Shared, Exclusive)
	refuse(t, q, all[0])
	wantWoken(t, q.Leave(all[0]), 1, 2)
	wantStates(t, all, Out, Ready, Ready, Queued)
	wantWoken(t, q.Leave(all[1]))
	wantWoken(t, q.Leave(all[1]))
	wantWoken(t, q.Leave(all[2]), 3)
}

// The next waiter after the new holder does not try: it knows that the lock is held.
func TestGranted_NextSleeps(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive, Exclusive, Exclusive)
	q.Asks(all[0], now)
	next, _ := q.Granted(all[0], 0, now, poll)
	if next != all[1] {
		t.Fatalf("next is %v", next)
	}
	wantStates(t, all, Out, Asleep, Queued)
	if step, d := q.Next(all[1], now); step != Sleep || d != time.Second {
		t.Errorf("it does %d for %v, want a sleep until the poll", step, d)
	}
}

func TestGranted_SharedFollow(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Shared, Shared, Exclusive)
	q.Asks(all[0], now)
	if next, _ := q.Granted(all[0], 0, now, poll); next != nil {
		t.Errorf("waiter %d need not ask, but it may share the lock", next.Item)
	}
	want(t, q, all[1], Ask)
}

func TestDismiss(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive, Exclusive, Exclusive)
	q.Asks(all[0], now)
	arrivals := q.Arrivals()
	late := join(t, q, Exclusive)
	out, woken := q.Dismiss(arrivals, func(w *Waiter[int]) bool { return w == all[1] })
	if !slices.Equal(items(out), []int{0, 2}) {
		t.Errorf("%v are out", items(out))
	}
	wantWoken(t, woken, 1)
	wantStates(t, append(all, late), Out, Ready, Out, Queued)
}

func TestHandTo(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive, Exclusive)
	refuse(t, q, all[0])
	heir := q.Heir(now)
	q.HandTo(heir, now, poll)
	if heir != all[0] || q.Heir(now) != nil {
		t.Error("a waiter that has an offer is offered another hold")
	}
	q.Wake()
	want(t, q, heir, Sleep) // it does not try
	q.EndHandOver(heir)
	want(t, q, heir, Ask) // it was woken meanwhile
	q.Asks(heir, now)
	if q.Heir(now) != nil {
		t.Error("a waiter that asks is offered a hold")
	}
}

// A waiter changes its state as docs/inside/engine-states.md says. In tests, any other change
// panics.
func TestMove_RefusesWhatTheMachineDoesNotHave(t *testing.T) {
	t.Parallel()
	allowed := map[State][]State{
		New:    {Ready, Queued, Out},
		Queued: {Ready, Out},
		Ready:  {Asking, Asleep, Heir, Out},
		Asking: {Asleep, Out},
		Asleep: {Asking, Heir, Out},
		Heir:   {Asleep, Out},
	}
	for from := New; from <= Out; from++ {
		for to := New; to <= Out; to++ {
			w := &Waiter[int]{state: from}
			refused := panics(func() { w.move(to) })
			if want := !slices.Contains(allowed[from], to); refused != want {
				t.Errorf("%s to %s: refused %v, want %v", from, to, refused, want)
			}
			if refused && w.State() != from || !refused && w.State() != to {
				t.Errorf("%s to %s: the waiter is %s", from, to, w.State())
			}
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// endStreak hands the lock over until the streak is over.
func endStreak(t *testing.T, q *Queue[int]) {
	t.Helper()
	for i := 0; q.Heir(now) != nil; i++ {
		if i > streakMoves {
			t.Fatalf("a streak of more than %d hand-overs", streakMoves)
		}
		q.HandedOver(now)
	}
}

func TestStreak_Ends(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, Exclusive)
	q.HandedOver(now)
	if q.Heir(now+clock.Moment(streakTime)) != nil {
		t.Error("a streak goes on for longer than streakTime")
	}
	endStreak(t, q)
	if q.rotation.moves != streakMoves {
		t.Errorf("a streak of %d, want %d", q.rotation.moves, streakMoves)
	}
	fair, _ := newQueue(t, RedisQueue)
	for range 1000 {
		fair.HandedOver(now)
	}
	if fair.Heir(now) == nil {
		t.Error("Redis keeps the queue, and sees to the turns of others")
	}
}

// After a streak, other processes have the first chance for as long as the table says.
func TestStreak_FirstChanceOfOthers(t *testing.T) {
	t.Parallel()
	const until = now + 1000
	type event func(q *Queue[int]) []*Waiter[int]
	message := func(q *Queue[int]) []*Waiter[int] { return q.Message() }
	freed := func(l Listeners) event {
		return func(q *Queue[int]) []*Waiter[int] { return q.Freed(until, l) }
	}
	for _, tc := range []struct {
		name   string
		echoes int
		events []event
		asks   bool // at once
		rest   time.Duration
	}{
		{"the release is on its way", 1, nil, false, Forever},
		{"no other listens", 1, []event{freed(NoListeners)}, true, 0},
		{"no other listens, and our own message comes first", 1, []event{message, freed(NoListeners)}, true, 0},
		{"others listen", 1, []event{freed(OtherListeners)}, false, 1000},
		{"others listen, and our own message comes", 1, []event{freed(OtherListeners), message}, false, 1000},
		{"our own message comes first", 1, []event{message, freed(OtherListeners)}, false, 1000},
		{"others have freed it again", 1, []event{freed(OtherListeners), message, message}, true, 0},
		{"others have freed it before the reply", 1, []event{message, message, freed(OtherListeners)}, true, 0},
		{"two messages of our own", 2, []event{freed(OtherListeners), message, message}, false, 1000},
		{"Redis does not count", 0, []event{freed(UnknownListeners)}, false, 1000},
		{"Redis does not count, and the message comes", 0, []event{freed(UnknownListeners), message}, true, 0},
		{"one of us has it", 1, []event{func(q *Queue[int]) []*Waiter[int] {
			_, wake := q.Granted(&Waiter[int]{state: Out}, 0, now, now)
			return wake
		}}, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			q, all := newQueue(t, Exclusive)
			refuse(t, q, all[0])
			endStreak(t, q)
			q.Freeing(now, tc.echoes)
			all[0].PollAt = 0
			for _, e := range tc.events {
				e(q)
			}
			step, d := q.Next(all[0], now)
			if all[0].PollAt == now { // Granted sets it
				step = Ask
			}
			if (step == Ask) != tc.asks || d != tc.rest {
				t.Errorf("it does %d for %v, want to ask: %v, or a rest of %v", step, d, tc.asks, tc.rest)
			}
			if q.rotation.moves != 0 {
				t.Errorf("the next streak begins with %d hand-overs", q.rotation.moves)
			}
		})
	}
}

func TestStreak_RestEnds(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Shared, Shared)
	refuse(t, q, all...)
	for range streakMoves {
		q.HandedOver(now)
	}
	q.Freeing(now, 0)
	wantWoken(t, q.Freed(now+10, OtherListeners), 0, 1)
	for _, w := range all {
		if step, _ := q.Next(w, now+10); step != Ask {
			t.Errorf("waiter %d does %d after the rest, want a question", w.Item, step)
		}
	}
}

// The last waiter may leave between the hand-over to it and its release.
func TestFreeing_NoWaiterAfterAStreak(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive)
	for range streakMoves {
		q.HandedOver(now)
	}
	q.Leave(all[0])
	q.Freeing(now, 1)
	if woken := q.Freed(now+10, OtherListeners); len(woken) > 0 {
		t.Errorf("%v are woken, want none", items(woken))
	}
	late := &Waiter[int]{Item: 1, Limit: 1}
	q.Join(late)
	want(t, q, late, Ask)
}

func TestFreeing_WithoutAStreak(t *testing.T) {
	t.Parallel()
	q, all := newQueue(t, Exclusive)
	refuse(t, q, all[0])
	q.HandedOver(now)
	q.Freeing(now, 1)
	wantWoken(t, q.Freed(now+10, OtherListeners), 0)
	want(t, q, all[0], Ask)
}

// Sleeping waiters that are never first cause no work, so the queue costs the same for each.
func TestArrivalsWrapAround(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t)
	q.arrivals = 1<<32 - 2
	var all []*Waiter[int]
	for i := range 4 {
		all = append(all, join(t, q, Exclusive))
		all[i].Item = i
	}
	out, _ := q.Dismiss(all[2].arrival, func(*Waiter[int]) bool { return false })
	if got := fmt.Sprint(items(out)); got != "[0 1 2]" {
		t.Errorf("%s are out, want the first three", got)
	}
}

// newPermitQueue returns a queue of callers for permits that n callers have joined. As many as
// together may try at first.
func newPermitQueue(t *testing.T, n, together int) (*Queue[int], []*Waiter[int]) {
	t.Helper()
	q := new(Queue[int])
	q.Init()
	var all []*Waiter[int]
	for i := range n {
		w := &Waiter[int]{Item: i, Class: Counted, Limit: 1000, Together: int32(together)}
		if a := q.Join(w); a != Admitted {
			t.Fatalf("waiter %d: %d, want it admitted", i, a)
		}
		all = append(all, w)
	}
	return q, all
}

// Callers for permits try together until one is refused. From then on those that come queue up.
func TestCounted_Join(t *testing.T) {
	t.Parallel()
	q, all := newPermitQueue(t, 4, 3)
	wantStates(t, all, Ready, Ready, Ready, Queued)
	if a := q.Join(&Waiter[int]{Class: Counted, NoWait: true, Together: 3}); a != Behind {
		t.Errorf("a single attempt while three try: %d, want it refused", a)
	}
	refuse(t, q, all[:3]...)
	later := &Waiter[int]{Item: 4, Class: Counted, Limit: 1000, Together: 3}
	q.Join(later)
	wantStates(t, append(all, later), Asleep, Asleep, Asleep, Queued, Queued)
}

// A caller that was refused comes before those that come later, even if more may try together.
func TestCounted_JoinBehindOneThatWasRefused(t *testing.T) {
	t.Parallel()
	q, all := newPermitQueue(t, 1, 3)
	refuse(t, q, all[0])
	later := &Waiter[int]{Item: 1, Class: Counted, Limit: 1000, Together: 3}
	q.Join(later)
	wantStates(t, append(all, later), Asleep, Queued)
}

// After a grant, as many try as permits are free, and one more hears what becomes free.
func TestCounted_Granted(t *testing.T) {
	t.Parallel()
	for free, states := range map[int][]State{
		0: {Asleep, Queued, Queued, Queued},
		1: {Ready, Queued, Queued, Queued},
		3: {Ready, Ready, Ready, Queued},
		9: {Ready, Ready, Ready, Ready},
	} {
		q, all := newPermitQueue(t, 5, 1)
		q.Asks(all[0], now)
		next, wake := q.Granted(all[0], free, now, poll)
		wantStates(t, all[1:], states...)
		if next != all[1] {
			t.Errorf("%d free: %v is next", free, next)
		}
		var want []int
		for i := range min(free, 4) {
			want = append(want, i+1)
		}
		wantWoken(t, wake, want...)
	}
}

// What became free while a caller asked for a permit is for the next one.
func TestCounted_GrantedAndWoken(t *testing.T) {
	t.Parallel()
	q, all := newPermitQueue(t, 2, 1)
	q.Asks(all[0], now)
	wantWoken(t, q.Message(), 0)
	_, wake := q.Granted(all[0], 0, now, poll)
	wantWoken(t, wake, 1)
	want(t, q, all[1], Ask)
}

// A message wakes the first that is no heir. Once that has a permit, it is the next one's turn.
func TestCounted_Message(t *testing.T) {
	t.Parallel()
	q, all := newPermitQueue(t, 3, 3)
	refuse(t, q, all...)
	wantWoken(t, q.Message(), 0)
	want(t, q, all[1], Sleep)
	q.Asks(all[0], now)
	next, wake := q.Granted(all[0], 0, now, poll)
	wantWoken(t, wake)
	if next != all[1] {
		t.Errorf("%v hears what becomes free next", next)
	}
}

// Several holds are handed over at a time, each to the first that is no heir yet. Who asks because a
// permit is free gets that one, so the hold is for the next. Who asks for another reason might be
// refused, and must not be overtaken.
func TestCounted_Heirs(t *testing.T) {
	t.Parallel()
	q, all := newPermitQueue(t, 5, 1)
	refuse(t, q, all[0])
	for i := range 2 {
		if h := q.Heir(now); h != all[i] {
			t.Fatalf("%v is heir %d", h, i)
		}
		next := q.HandTo(all[i], now, poll)
		if next != all[i+1] {
			t.Errorf("%v comes to the front after heir %d", next, i)
		}
		want(t, q, all[i+1], Sleep)
	}
	wantStates(t, all, Heir, Heir, Asleep, Queued, Queued)

	q.Asks(all[2], now) // it polls
	if h := q.Heir(now); h != nil {
		t.Errorf("%v overtakes one that asks", h)
	}
	q.Refused(all[2], poll)
	wake := q.Freed(now, NoListeners)
	wantWoken(t, wake, 0, 1, 2)
	q.Asks(all[2], now)
	if h := q.Heir(now); h != all[3] {
		t.Errorf("%v is the heir while another gets a free permit", h)
	}
	q.HandTo(all[3], now, poll)
	q.EndHandOver(all[3])
	wantStates(t, all, Heir, Heir, Asking, Asleep, Queued)

	q.EndHandOver(all[1])
	q.HandedOver(now)
	q.Granted(all[1], 0, now, poll)
	wantStates(t, all, Heir, Out, Asking, Asleep, Queued)
}
