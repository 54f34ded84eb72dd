package schedule

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A log records what was fired, and when.
type log struct {
	mu     sync.Mutex
	began  time.Time
	values []string
	times  []time.Duration
	calls  int
}

func newLog() *log { return &log{began: time.Now()} }

func (l *log) fire(due []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	for _, v := range due {
		l.values = append(l.values, v)
		l.times = append(l.times, time.Since(l.began))
	}
}

func (l *log) want(t *testing.T, values []string, times []time.Duration) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.values, values) || !slices.Equal(l.times, times) {
		t.Errorf("fired %q at %v, want %q at %v", l.values, l.times, values, times)
	}
}

// synctest's clock stops while anything runs, so values are fired exactly when they are due.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

func TestFiresInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLog()
		s := New(0, l.fire)
		defer s.Close()
		var a, b, c, d Entry
		s.Set(&c, "c", 30*time.Second)
		s.Set(&a, "a", 10*time.Second)
		s.Set(&d, "d", time.Hour)
		s.Set(&b, "b", 20*time.Second)
		if s.Len() != 4 {
			t.Errorf("Len %d, want 4", s.Len())
		}
		time.Sleep(time.Minute)
		l.want(t, []string{"a", "b", "c"}, []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second})
		if s.Len() != 1 {
			t.Errorf("Len %d, want 1", s.Len())
		}
	})
}

func TestSetMovesAnEntry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLog()
		s := New(0, l.fire)
		defer s.Close()
		var earlier, later, again Entry
		s.Set(&earlier, "was a minute", time.Minute)
		s.Set(&later, "was a second", time.Second)
		s.Set(&again, "first", 3*time.Second)
		s.Set(&earlier, "earlier", 2*time.Second)
		s.Set(&later, "later", 4*time.Second)
		time.Sleep(3500 * time.Millisecond)
		s.Set(&again, "second", 2*time.Second) // a fired entry can be reused
		time.Sleep(time.Hour)
		l.want(t, []string{"earlier", "first", "later", "second"},
			[]time.Duration{2 * time.Second, 3 * time.Second, 4 * time.Second, 5500 * time.Millisecond})
	})
}

func TestCancel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLog()
		s := New(0, l.fire)
		defer s.Close()
		var never, first, kept, only Entry
		s.Cancel(&never) // not scheduled
		s.Set(&first, "cancelled", time.Second)
		s.Set(&kept, "kept", 2*time.Second)
		s.Cancel(&first)
		s.Cancel(&first)
		time.Sleep(time.Minute)
		s.Cancel(&kept) // fired long ago
		l.want(t, []string{"kept"}, []time.Duration{2 * time.Second})

		s.Set(&only, "cancelled", time.Second)
		s.Cancel(&only)
		if s.Len() != 0 {
			t.Errorf("Len %d, want 0", s.Len())
		}
		time.Sleep(time.Minute)
		s.Set(&only, "after nothing at all", time.Second)
		time.Sleep(time.Minute)
		l.want(t, []string{"kept", "after nothing at all"}, []time.Duration{2 * time.Second, 121 * time.Second})
	})
}

func TestDueAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLog()
		s := New(0, l.fire)
		defer s.Close()
		var zero, past Entry
		s.Set(&past, "past", -time.Hour)
		synctest.Wait()
		s.Set(&zero, "zero", 0)
		synctest.Wait()
		l.want(t, []string{"past", "zero"}, []time.Duration{0, 0})
	})
}

// A delay so long that the due time would overflow means forever.
func TestEndlessDelay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLog()
		s := New(time.Second, l.fire)
		defer s.Close()
		time.Sleep(time.Second)
		var endless, hour Entry
		s.Set(&endless, "never", never)
		s.Set(&hour, "hour", time.Hour)
		time.Sleep(24 * time.Hour)
		l.want(t, []string{"hour"}, []time.Duration{time.Hour + time.Second})
		if s.Len() != 1 {
			t.Errorf("Len %d, want 1", s.Len())
		}
	})
}

// Neighbours fire together: those within slack of the first due value, and no others.
func TestSlack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLog()
		s := New(time.Second, l.fire)
		defer s.Close()
		var entries [4]Entry
		for i, d := range []time.Duration{10000, 10500, 11000, 11001} {
			s.Set(&entries[i], string(rune('a'+i)), d*time.Millisecond)
		}
		time.Sleep(9999 * time.Millisecond)
		l.want(t, nil, nil) // slack alone fires nothing early
		time.Sleep(time.Minute)
		first, last := 10*time.Second, 11001*time.Millisecond
		l.want(t, []string{"a", "b", "c", "d"}, []time.Duration{first, first, first, last})
		if l.calls != 2 {
			t.Errorf("%d calls, want 2", l.calls)
		}
	})
}

// A sleeping schedule wakes for an earlier time, even one that is set while it fires.
func TestNearerTimeWhileAsleepAndWhileFiring(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLog()
		var s *Schedule[string]
		var far, near, chained Entry
		s = New(0, func(due []string) {
			l.fire(due)
			if due[0] == "near" {
				s.Set(&chained, "chained", time.Second)
			}
		})
		defer s.Close()
		s.Set(&far, "far", time.Hour)
		time.Sleep(time.Minute)
		s.Set(&near, "near", time.Second)
		time.Sleep(2 * time.Hour)
		l.want(t, []string{"near", "chained", "far"}, []time.Duration{61 * time.Second, 62 * time.Second, time.Hour})
	})
}

func TestCloseFiresNothingMore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLog()
		s := New(0, l.fire)
		var before, after Entry
		s.Set(&before, "before", time.Second)
		s.Close()
		s.Close()
		s.Set(&after, "after", time.Second)
		s.Cancel(&after)
		time.Sleep(time.Minute)
		l.want(t, nil, nil)
	})
}

func TestCloseWaitsForAFireUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ended := false
		s := New(0, func([]string) {
			time.Sleep(time.Minute)
			ended = true // the race detector checks that Close returns later
		})
		var e Entry
		s.Set(&e, "slow", 0)
		time.Sleep(time.Second)
		s.Close()
		if !ended {
			t.Error("Close did not wait")
		}
	})
}

// A loop with a sleep of 0 looks again at once. One with a negative sleep waits for a nudge.
func TestLoopWithoutSleep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		looks := 0
		l := NewLoop(func() time.Duration {
			if looks++; looks < 3 {
				return 0
			}
			return -1
		})
		defer l.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if looks != 3 {
			t.Errorf("looked %d times, want 3", looks)
		}
	})
}

// A random test: thousands of entries are set, moved and cancelled.
func TestManyAtRandom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const n = 2000
		random := rand.New(rand.NewPCG(1, 2))
		got := make(map[int]time.Duration)
		began := time.Now()
		s := New(0, func(due []int) {
			for _, v := range due {
				if _, twice := got[v]; twice {
					t.Errorf("entry %d fired twice", v)
				}
				got[v] = time.Since(began)
			}
		})
		entries := make([]Entry, n)
		want := make(map[int]time.Duration)
		for range 5 * n {
			i := random.IntN(n)
			if random.IntN(4) == 0 {
				s.Cancel(&entries[i])
				delete(want, i)
				continue
			}
			d := time.Duration(1+random.IntN(3600)) * time.Second
			s.Set(&entries[i], i, d)
			want[i] = d
		}
		if s.Len() != len(want) {
			t.Errorf("Len %d, want %d", s.Len(), len(want))
		}
		time.Sleep(2 * time.Hour)
		s.Close()
		for i := range n {
			if got[i] != want[i] {
				t.Errorf("entry %d: fired at %v, want %v", i, got[i], want[i])
			}
		}
	})
}

// Concurrent use: entries whose last call is Set fire, and nothing fires after Cancel and Close.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	fired := make(map[int]int)
	all := make(chan struct{})
	const n = 64
	s := New(time.Microsecond, func(due []int) {
		mu.Lock()
		defer mu.Unlock()
		for _, v := range due {
			fired[v]++
		}
		done := true
		for i := range n {
			done = done && fired[2*i] > 0
		}
		if done {
			select {
			case <-all:
			default:
				close(all)
			}
		}
	})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var e, hour Entry
			for range 50 {
				s.Set(&e, 2*i, time.Hour)
				s.Set(&hour, 2*i+1, time.Hour)
				s.Cancel(&e)
				s.Set(&e, 2*i, time.Millisecond)
				s.Cancel(&hour)
			}
		})
	}
	wg.Wait()
	select {
	case <-all:
	case <-time.After(20 * time.Second):
		t.Error("not all values fired")
	}
	s.Close()
	for i := range n {
		if fired[2*i+1] != 0 {
			t.Errorf("entry %d fired although it was cancelled", 2*i+1)
		}
	}
}
