package watchdog

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// A random test with thousands of items: each is taken once, not late, and not earlier than
// allowed.
func TestRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		random := rand.New(rand.NewPCG(1, 2))
		r := newRing[string](interval)
		began := time.Now()
		items := make([]item, n)
		due := make(map[*item]time.Duration)
		for step := range 20 * n {
			it := &items[random.IntN(n)]
			switch _, in := due[it]; {
			case in && random.IntN(3) == 0:
				r.remove(it)
				delete(due, it)
			case !in:
				delay := time.Duration(random.Int64N(int64(interval) + 1))
				r.add(it, delay)
				due[it] = time.Since(began) + delay
			}
			if step%100 > 0 {
				continue
			}
			_, sleep := r.pause()
			if sleep < 0 || random.IntN(50) == 0 { // no look for a while
				sleep = time.Duration(random.Int64N(int64(3 * interval)))
			}
			late := sleep > interval
			time.Sleep(sleep)
			at := time.Since(began)
			fill := random.IntN(60)
			taken := r.take(fill)
			for _, it := range taken {
				want, in := due[it]
				if !in {
					t.Fatal("took an item that is not in the ring")
				}
				if early := want - at; early > (ahead+1)*r.width && !late {
					t.Errorf("taken %s early", early)
				}
				delete(due, it)
			}
			for _, want := range due {
				if want < at-r.width {
					t.Fatalf("not taken, %s late", at-want)
				}
			}
			if len(due) != r.len {
				t.Fatalf("%d items are in the ring, want %d", r.len, len(due))
			}
		}
		if all := r.takeAll(); len(all) != len(due) || r.len != 0 {
			t.Errorf("%d items were left, want %d", len(all), len(due))
		}
		if until, sleep := r.pause(); until != never || sleep >= 0 {
			t.Errorf("pause of an empty ring: %s", sleep)
		}
	})
}

// If an item is overdue when pause is called, the pause is 0. A negative pause would mean forever.
func TestRing_Overdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing[string](interval)
		due := r.add(new(item), interval/2)
		time.Sleep(interval)
		if until, sleep := r.pause(); until != due || sleep != 0 {
			t.Errorf("pause for %s, until tick %d; want none, until %d", sleep, until, due)
		}
	})
}

// Whatever the clock shows, the ring takes every item. An item is late only by the time for which
// the clock stood still.
func TestRing_OddClocks(t *testing.T) {
	for name, odd := range map[string]func(r *ring[string], it *item){
		"a due time before the beginning":  func(r *ring[string], it *item) { r.add(it, -time.Hour) },
		"a due time before all times":      func(r *ring[string], it *item) { r.add(it, math.MinInt64) },
		"a clock before the beginning":     func(r *ring[string], it *item) { r.began = time.Now().Add(time.Hour); r.add(it, 0) },
		"a clock that is set back":         func(r *ring[string], it *item) { r.add(it, 0); r.began = r.began.Add(time.Hour) },
		"a clock that is set back by ages": func(r *ring[string], it *item) { r.add(it, 0); r.began = r.began.Add(math.MaxInt64) },
		"a clock that leaps": func(r *ring[string], it *item) {
			r.add(it, interval)
			r.began = r.began.Add(-100 * 365 * 24 * time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRing[string](interval)
				time.Sleep(5 * interval)
				it := new(item)
				odd(&r, it)
				for range 2 * ringSize {
					if _, sleep := r.pause(); sleep < 0 || sleep > interval {
						t.Fatalf("pause of %s before an item that is due within %s", sleep, interval)
					}
					if taken := r.take(1); len(taken) == 1 && taken[0] == it {
						return
					}
					time.Sleep(r.width)
				}
				t.Errorf("not taken within %s", 2*ringSize*r.width)
			})
		})
	}
}
