package watchdog

import (
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
