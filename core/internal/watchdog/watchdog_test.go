package watchdog

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The tests run in synctest bubbles, whose clock moves only when all goroutines wait, so their
// times are exact.

const interval = 10 * time.Second

// In these tests a hold is just its key.
type item = Item[string]

// A kennel is a watchdog with a server that answers as the test says.
type kennel struct {
	*Watchdog[string]
	start time.Time

	mu      sync.Mutex
	sends   []send
	answer  func(batch []*item) []Verdict // nil: all renewed
	under   map[*item]int                 // renewals of an item in flight
	overlap bool
}

type send struct {
	at   time.Duration
	keys []string
}

func newKennel(answer func(batch []*item) []Verdict) *kennel {
	k := &kennel{start: time.Now(), answer: answer, under: make(map[*item]int)}
	k.Watchdog = New(Config[string]{Interval: interval, Send: k.send})
	return k
}

func (k *kennel) send(batch []*item) []Verdict {
	s := send{at: time.Since(k.start)}
	k.mu.Lock()
	for _, it := range batch {
		s.keys = append(s.keys, it.Hold)
		k.under[it]++
		k.overlap = k.overlap || k.under[it] > 1
	}
	k.sends = append(k.sends, s)
	answer := k.answer
	k.mu.Unlock()

	verdicts := make([]Verdict, len(batch))
	if answer != nil {
		verdicts = answer(batch)
	}

	k.mu.Lock()
	for _, it := range batch {
		k.under[it]--
	}
	k.mu.Unlock()
	return verdicts
}

// Arm arms an item whose lease has just begun.
func (k *kennel) Arm(it *item) { k.Watchdog.Arm(it, 3*interval) }

// of returns the times at which a key was sent.
func (k *kennel) of(key string) (at []time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.sends {
		if slices.Contains(s.keys, key) {
			at = append(at, s.at)
		}
	}
	return at
}

func (k *kennel) all() []send {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.sends)
}

func (k *kennel) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sends = nil
}

func items(n int) []*item {
	list := make([]*item, n)
	for i := range list {
		list[i] = &item{Hold: fmt.Sprintf("key%03d", i)}
	}
	return list
}

// in runs f in a bubble with a watchdog, and closes that afterwards.
func in(t *testing.T, answer func(batch []*item) []Verdict, f func(t *testing.T, k *kennel)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKennel(answer)
		f(t, k)
		k.Close()
		if k.overlap {
			t.Error("an item was renewed twice at the same time")
		}
	})
}

// pass advances the clock.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func verdict(v Verdict) func([]*item) []Verdict {
	return func(batch []*item) []Verdict { return slices.Repeat([]Verdict{v}, len(batch)) }
}

func TestRenewsEveryInterval(t *testing.T) {
	in(t, nil, func(t *testing.T, k *kennel) {
		k.Arm(items(1)[0])
		if k.Len() != 1 {
			t.Errorf("Len = %d with one item armed", k.Len())
		}
		pass(100 * interval)
		last := time.Duration(0)
		for i, at := range k.of("key000") {
			least := interval*7/8 - interval/32
			if i == 0 {
				least = interval / 2
			}
			if gap := at - last; gap > interval || gap < least {
				t.Errorf("renewal %d came %s after the one before, want %s to %s", i, gap, least, interval)
			}
			last = at
		}
		if last < 99*interval {
			t.Errorf("the last renewal was at %s of %s", last, 100*interval)
		}
	})
}

func TestArmTwiceIsOnce(t *testing.T) {
	in(t, nil, func(t *testing.T, k *kennel) {
		it := items(1)[0]
		k.Arm(it)
		pass(interval / 2)
		k.Arm(it)
		if k.Len() != 1 {
			t.Errorf("Len = %d", k.Len())
		}
		pass(interval / 2)
		if n := len(k.of(it.Hold)); n != 1 {
			t.Errorf("%d renewals in the first interval, want 1: the second Arm must not add or delay one", n)
		}
	})
}

// An item whose lease ends soon is renewed in time.
func TestArmLate(t *testing.T) {
	in(t, nil, func(t *testing.T, k *kennel) {
		list := items(10)
		for _, it := range list {
			k.Watchdog.Arm(it, interval/2)
		}
		pass(interval / 4)
		for _, it := range list {
			if n := len(k.of(it.Hold)); n != 1 {
				t.Errorf("%d renewals in half of what was left, want 1", n)
			}
		}
	})
}

func TestCancel(t *testing.T) {
	in(t, nil, func(t *testing.T, k *kennel) {
		it := items(1)[0]
		k.Cancel(it) // no effect on an idle item
		k.Arm(it)
		pass(3 * interval / 2)
		k.Cancel(it)
		k.forget()
		if k.Len() != 0 {
			t.Errorf("Len = %d after Cancel", k.Len())
		}
		pass(10 * interval)
		if n := len(k.all()); n != 0 {
			t.Errorf("%d renewals after Cancel", n)
		}
		k.Arm(it)
		pass(interval)
		if n := len(k.of(it.Hold)); n != 1 {
			t.Errorf("%d renewals in the first interval of a second life, want 1", n)
		}
	})
}

// The result of a renewal does not bring back an item that was cancelled meanwhile. The item can be
// armed again.
func TestCancelDuringRenewal(t *testing.T) {
	for name, v := range map[string]Verdict{"renewed": Renewed, "gone": Gone, "refused": Refused, "unanswered": Unanswered} {
		t.Run(name, func(t *testing.T) {
			in(t, func([]*item) []Verdict { time.Sleep(time.Second); return []Verdict{v} }, func(t *testing.T, k *kennel) {
				it := items(1)[0]
				k.Arm(it)
				for len(k.all()) == 0 {
					pass(time.Millisecond)
				}
				k.Cancel(it)
				pass(10 * interval)
				if n := len(k.all()); n != 1 || k.Len() != 0 {
					t.Errorf("%d renewals, Len %d; want only the one in flight", n, k.Len())
				}
				k.Arm(it)
				pass(interval)
				if n := len(k.all()); n < 2 {
					t.Error("not renewed after it was armed again")
				}
			})
		})
	}
}

// An item that is cancelled and armed again during a renewal continues, once.
func TestArmDuringRenewal(t *testing.T) {
	in(t, func([]*item) []Verdict { time.Sleep(time.Second); return []Verdict{Renewed} }, func(t *testing.T, k *kennel) {
		it := items(1)[0]
		k.Arm(it)
		for len(k.all()) == 0 {
			pass(time.Millisecond)
		}
		k.Cancel(it)
		k.Arm(it)
		pass(interval + time.Second)
		if n := len(k.all()); n != 2 || k.Len() != 1 {
			t.Errorf("%d renewals, Len %d; want 2 and 1", n, k.Len())
		}
	})
}

// A result that comes after an item was cancelled and armed again is about the hold as it was
// before that. Whatever it is, the item is renewed again.
func TestArmDuringRenewal_OldResult(t *testing.T) {
	for name, v := range map[string]Verdict{"renewed": Renewed, "gone": Gone, "outdated": Outdated, "refused": Refused, "unanswered": Unanswered} {
		for _, times := range []int{1, 2} {
			t.Run(fmt.Sprint(name, times), func(t *testing.T) {
				in(t, func([]*item) []Verdict { time.Sleep(time.Second); return []Verdict{v} }, func(t *testing.T, k *kennel) {
					it := items(1)[0]
					k.Arm(it)
					for len(k.all()) == 0 {
						pass(time.Millisecond)
					}
					for range times {
						k.Cancel(it)
						k.Arm(it)
					}
					k.mu.Lock()
					k.answer = nil
					k.mu.Unlock()
					pass(5 * interval)
					if n := len(k.all()); n < 5 || k.Len() != 1 {
						t.Errorf("%d renewals in 5 intervals, Len %d; want it renewed", n, k.Len())
					}
					k.Cancel(it)
					if k.Len() != 0 {
						t.Errorf("Len = %d after Cancel", k.Len())
					}
				})
			})
		}
	}
}

func TestGoneIsDropped(t *testing.T) {
	in(t, func(batch []*item) []Verdict {
		verdicts := make([]Verdict, len(batch))
		for i, it := range batch {
			if it.Hold == "key001" {
				verdicts[i] = Gone
			}
		}
		return verdicts
	}, func(t *testing.T, k *kennel) {
		for _, it := range items(3) {
			k.Arm(it)
		}
		pass(5 * interval)
		if n := len(k.of("key001")); n != 1 || k.Len() != 2 {
			t.Errorf("the item whose hold is gone was sent %d times, Len %d; want 1 and 2", n, k.Len())
		}
		for _, key := range []string{"key000", "key002"} {
			if n := len(k.of(key)); n < 5 {
				t.Errorf("%s was renewed %d times in 5 intervals", key, n)
			}
		}
	})
}

// A refused batch is sent again item by item at once. An item that is refused alone is retried
// later.
func TestRefusedInCompany(t *testing.T) {
	refuse := func(batch []*item) []Verdict {
		bad := slices.ContainsFunc(batch, func(it *item) bool { return it.Hold == "key002" })
		verdicts := make([]Verdict, len(batch))
		for i := range verdicts {
			if bad {
				verdicts[i] = Refused // like a script that fails as a whole
			}
		}
		return verdicts
	}
	in(t, refuse, func(t *testing.T, k *kennel) {
		list := items(5)
		for _, it := range list {
			k.Arm(it)
		}
		k.RenewAll()
		pass(0)
		sends := k.all()
		if len(sends) != 6 || len(sends[0].keys) != 5 {
			t.Fatalf("sends: %v; want one batch of 5, then each alone", sends)
		}
		for _, s := range sends {
			if s.at != 0 {
				t.Errorf("%v was sent %s late", s.keys, s.at)
			}
		}

		k.forget()
		pass(interval / 2)
		for _, it := range list {
			if n := len(k.of(it.Hold)); (n > 0) != (it.Hold == "key002") {
				t.Errorf("%s was sent %d times before the next interval", it.Hold, n)
			}
		}
	})
}

// Items that Redis refuses hold up no others, and one another only for a while: once Redis falls
// silent or slow, the rest wait for their retry and not for each other.
func TestRefusedHoldUpNoOthers(t *testing.T) {
	for name, slow := range map[string]struct {
		command time.Duration
		v       Verdict
	}{"silent": {interval, Unanswered}, "slow": {interval / 4, Refused}} {
		t.Run(name, func(t *testing.T) {
			const good, bad = 80, 20
			answer := func(batch []*item) []Verdict {
				verdicts := make([]Verdict, len(batch))
				for i, it := range batch {
					if it.Hold < fmt.Sprintf("key%03d", bad) {
						verdicts[i] = Refused
					}
				}
				if len(batch) == 1 && verdicts[0] == Refused {
					time.Sleep(slow.command)
					verdicts[0] = slow.v
				}
				return verdicts
			}
			in(t, answer, func(t *testing.T, k *kennel) {
				list := items(bad + good)
				for _, it := range list {
					k.Arm(it)
				}
				k.RenewAll()
				pass(interval)
				for _, it := range list[bad:] {
					if n := len(k.of(it.Hold)); n < 2 {
						t.Errorf("%s was sent %d times in an interval, want again at its end", it.Hold, n)
					}
				}
				pass(interval)
				for _, it := range list[:bad] {
					if n := len(k.of(it.Hold)); n < 2 {
						t.Errorf("%s was sent %d times in two intervals, want a retry", it.Hold, n)
					}
				}
			})
		})
	}
}

// An item that is cancelled before its turn to be sent alone is not sent. If it was armed again,
// its renewal is one of the new arming.
func TestRefusedInCompany_Cancelled(t *testing.T) {
	answer := func(batch []*item) []Verdict {
		if len(batch) > 1 {
			return slices.Repeat([]Verdict{Refused}, len(batch))
		}
		time.Sleep(time.Millisecond)
		return []Verdict{Gone}
	}
	in(t, answer, func(t *testing.T, k *kennel) {
		for _, it := range items(3) {
			k.Arm(it)
		}
		k.RenewAll()
		pass(0)
		sends := k.all()
		if len(sends) != 2 {
			t.Fatalf("sends: %v; want a batch and the first of its items", sends)
		}
		list := make(map[string]*item)
		k.mu.Lock()
		for it := range k.under {
			list[it.Hold] = it
		}
		k.mu.Unlock()
		cancelled, rearmed := list[sends[0].keys[1]], list[sends[0].keys[2]]
		k.Cancel(cancelled)
		k.Cancel(rearmed)
		k.Arm(rearmed)
		pass(interval)
		if n := len(k.of(cancelled.Hold)); n != 1 {
			t.Errorf("the cancelled item was sent %d times, want once", n)
		}
		if n := len(k.of(rearmed.Hold)); n != 2 || k.Len() != 0 {
			t.Errorf("the rearmed item was sent %d times, Len %d; want twice, and 0 as it is gone", n, k.Len())
		}
	})
}

func TestUnansweredBacksOff(t *testing.T) {
	in(t, verdict(Unanswered), func(t *testing.T, k *kennel) {
		for _, it := range items(3) {
			k.Arm(it)
		}
		k.RenewAll()
		pass(10 * interval)
		gaps := make([]time.Duration, 0)
		last := time.Duration(-1)
		for _, at := range k.of("key000") {
			if last >= 0 {
				gaps = append(gaps, at-last)
			}
			last = at
		}
		if len(gaps) < 60 {
			t.Fatalf("%d retries in 10 intervals; the backoff exceeds an eighth", len(gaps))
		}
		if gaps[0] > interval/50 {
			t.Errorf("the first retry came after %s, want it soon", gaps[0])
		}
		for i, gap := range gaps {
			if gap > interval/8+time.Millisecond {
				t.Errorf("retry %d came after %s, want at most an eighth of %s", i, gap, interval)
			}
			if i > 0 && i < 5 && gap <= gaps[i-1] {
				t.Errorf("retries do not back off: %v", gaps[:5])
			}
		}
		for _, s := range k.all() {
			if len(s.keys) != 3 {
				t.Fatalf("an unanswered batch was split: %v", s)
			}
		}

		// The first answer ends the backoff.
		k.mu.Lock()
		k.answer = nil
		k.mu.Unlock()
		pass(interval / 8)
		k.forget()
		pass(interval * 3 / 4)
		if n := len(k.all()); n != 0 {
			t.Errorf("%d renewals within the interval after one that was answered", n)
		}
	})
}

// A failed renewal is retried soon, even after a success or in a second life that follows many
// failures.
func TestFailureIsRetriedSoon(t *testing.T) {
	for name, v := range map[string]Verdict{"outdated": Outdated, "refused": Refused, "unanswered": Unanswered} {
		t.Run(name, func(t *testing.T) {
			in(t, verdict(v), func(t *testing.T, k *kennel) {
				it := items(1)[0]
				retriedSoon := func(when string) {
					t.Helper()
					k.forget()
					k.RenewAll()
					pass(interval / 50)
					if n := len(k.all()); n != 2 {
						t.Errorf("%s: %d renewals, want one and its retry", when, n)
					}
					pass(3 * interval)
				}
				answer := func(v Verdict) {
					k.mu.Lock()
					defer k.mu.Unlock()
					k.answer = verdict(v)
				}

				k.Arm(it)
				retriedSoon("at first")
				answer(Renewed)
				pass(interval)
				answer(v)
				retriedSoon("after a success")
				k.Cancel(it)
				k.Arm(it)
				retriedSoon("in a second life")
			})
		})
	}
}

func TestBatches(t *testing.T) {
	in(t, nil, func(t *testing.T, k *kennel) {
		list := items(3*BatchSize + 1)
		for i, it := range list {
			it.Slot = uint16(i % 2)
			k.Arm(it)
		}
		k.RenewAll()
		pass(0)
		sent := make(map[string]int)
		for _, s := range k.all() {
			if len(s.keys) > BatchSize {
				t.Errorf("a batch of %d", len(s.keys))
			}
			slots := make(map[uint16]bool)
			for _, key := range s.keys {
				sent[key]++
				i := slices.IndexFunc(list, func(it *item) bool { return it.Hold == key })
				slots[list[i].Slot] = true
			}
			if len(slots) != 1 {
				t.Errorf("a batch of slots %v", slices.Collect(maps.Keys(slots)))
			}
		}
		if len(sent) != len(list) {
			t.Errorf("%d of %d items were sent", len(sent), len(list))
		}
		for key, n := range sent {
			if n != 1 {
				t.Errorf("%s was sent %d times", key, n)
			}
		}
		// Four batches, and two more if the first items were taken before the last were added.
		if n := len(k.all()); n < 4 || n > 6 {
			t.Errorf("%d batches for 151 items of one slot and 150 of the other", n)
		}
	})
}

// Locks taken together are renewed by few scripts, spread over half an interval, and stay apart.
func TestSpread(t *testing.T) {
	in(t, nil, func(t *testing.T, k *kennel) {
		const n = 300
		for _, it := range items(n) {
			k.Arm(it)
		}
		pass(interval)
		if sends := len(k.all()); sends < 10 || sends > 20 {
			t.Errorf("%d scripts renewed %d locks; want some, spread over half an interval", sends, n)
		}
		renewed := 0
		for _, s := range k.all() {
			renewed += len(s.keys)
		}
		if renewed != n {
			t.Errorf("%d renewals of %d locks in the first interval", renewed, n)
		}

		pass(100 * interval)
		k.forget()
		from := time.Since(k.start)
		pass(interval * 7 / 8)
		var busy [14]bool
		for _, s := range k.all() {
			busy[min(13, int((s.at-from)/(interval/16)))] = true
		}
		if idle := slices.DeleteFunc(busy[:], func(b bool) bool { return b }); len(idle) > len(busy)/2 {
			t.Errorf("in %d of %d parts of the interval all locks are renewed, and none in the others", len(busy)-len(idle), len(busy))
		}
	})
}

// With many locks, batches are full and sent one at a time, so that Redis serves other commands in
// between.
func TestOneBatchAtATime(t *testing.T) {
	in(t, nil, func(t *testing.T, k *kennel) {
		const n = 50 * BatchSize
		for _, it := range items(n) {
			k.Arm(it)
		}
		pass(10 * interval)
		k.forget()
		pass(interval)
		sends := k.all()
		keys, together := 0, 0
		for i, s := range sends {
			keys += len(s.keys)
			if i > 0 && s.at == sends[i-1].at {
				together++
			}
		}
		if keys < len(sends)*BatchSize*9/10 {
			t.Errorf("%d scripts renewed %d locks", len(sends), keys)
		}
		if together > len(sends)/10 {
			t.Errorf("%d of %d scripts were sent together with another", together, len(sends))
		}
	})
}

func TestRenewAll(t *testing.T) {
	in(t, nil, func(t *testing.T, k *kennel) {
		list := items(3)
		for _, it := range list {
			k.Arm(it)
		}
		k.Cancel(list[1])
		pass(interval / 4) // nothing is due yet
		k.RenewAll()
		pass(0)
		for i, want := range []int{1, 0, 1} {
			if got := k.of(list[i].Hold); len(got) != want {
				t.Errorf("%s was sent at %v, want %d renewals at once", list[i].Hold, got, want)
			}
		}
	})
}

// RenewAll renews items with a renewal in flight once more, because that renewal was sent before
// the clocks diverged.
func TestRenewAllDuringRenewal(t *testing.T) {
	in(t, func([]*item) []Verdict { time.Sleep(time.Second); return []Verdict{Renewed} }, func(t *testing.T, k *kennel) {
		it := items(1)[0]
		k.Arm(it)
		k.RenewAll()
		pass(time.Second / 2)
		k.RenewAll()
		pass(time.Second)
		if got := k.of(it.Hold); len(got) != 2 || got[1] != time.Second {
			t.Errorf("renewals at %v; want a second one right after the first", got)
		}
		pass(3 * interval / 4)
		if n := len(k.of(it.Hold)); n != 2 {
			t.Errorf("%d renewals, the interval must follow the second", n)
		}
	})
}

// A hung node delays only the renewals of its slots.
func TestSlotsAreIndependent(t *testing.T) {
	in(t, func(batch []*item) []Verdict {
		if batch[0].Slot == 1 {
			time.Sleep(6 * interval)
		}
		return make([]Verdict, len(batch))
	}, func(t *testing.T, k *kennel) {
		list := items(2)
		list[1].Slot = 1
		for _, it := range list {
			k.Arm(it)
		}
		pass(5 * interval)
		if good, bad := len(k.of(list[0].Hold)), len(k.of(list[1].Hold)); good < 5 || bad != 1 {
			t.Errorf("%d renewals of the good slot, %d of the hung one; want at least 5 and 1", good, bad)
		}
	})
}

func TestCloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKennel(func([]*item) []Verdict { time.Sleep(time.Second); return []Verdict{Renewed} })
		it := items(1)[0]
		k.Arm(it)
		k.RenewAll()
		pass(time.Second / 4)
		k.Close()
		if at := time.Since(k.start); at != time.Second {
			t.Errorf("Close returned at %s, before the renewal that ended at 1s", at)
		}
		pass(10 * interval)
		if n := len(k.all()); n != 1 {
			t.Errorf("%d renewals, want none after Close", n)
		}
		k.Cancel(it)
		if k.Len() != 0 {
			t.Error("Cancel after Close must still remove the item")
		}
	})
}

// All methods concurrently on the real clock, for the race detector.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	var mu sync.Mutex
	under := make(map[*item]bool)
	verdicts := []Verdict{Renewed, Renewed, Renewed, Gone, Refused, Unanswered}
	w := New(Config[string]{Interval: 10 * time.Millisecond, Send: func(batch []*item) []Verdict {
		out := make([]Verdict, len(batch))
		mu.Lock()
		for i, it := range batch {
			if under[it] {
				t.Errorf("%s is renewed twice at the same time", it.Hold)
			}
			under[it] = true
			out[i] = verdicts[sent.Add(1)%int64(len(verdicts))]
		}
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		for _, it := range batch {
			delete(under, it)
		}
		mu.Unlock()
		return out
	}})
	list := items(64)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for round := range 500 {
				it := list[(g*31+round*7)%len(list)]
				w.Arm(it, 3*interval)
				switch round % 5 {
				case 0:
					w.RenewAll()
				case 1:
					time.Sleep(time.Millisecond)
				}
				if round%2 == 0 {
					w.Cancel(it)
				}
			}
		})
	}
	wg.Wait()
	for _, it := range list {
		w.Cancel(it)
	}
	w.Close()
	if w.Len() != 0 || sent.Load() == 0 {
		t.Errorf("Len = %d, %d renewals", w.Len(), sent.Load())
	}
}
