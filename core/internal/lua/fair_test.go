package lua

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A fairFixture is a fair lock in its own Redis, as its scripts and Redisson's see it. Waiters have
// numbers; 0 is the holder.
type fairFixture struct {
	*testing.T
	rdb *redis.Client
}

const (
	budget    = 300 * time.Second
	asLong    = 1 << 50 // ms: no limit for queueing up
	notAtAll  = 0
	soon      = 2 * time.Second
	queue     = "redisson_lock_queue:{order:42}"
	deadlines = "redisson_lock_timeout:{order:42}"
	toFirst   = "redisson_lock__channel:{order:42}:"
)

var (
	fairAnnouncement = Announcement{Channel: toFirst, Message: "0", Commands: []string{"PUBLISH"}}
	// Listeners are not counted, except in the tests about them.
	fairLock       = &Fair{Lock: key, Queue: queue, Deadlines: deadlines, Budget: budget, Grace: 2 * budget, Announcement: fairAnnouncement}
	fencedFairLock = &Fair{Lock: key, Queue: queue, Deadlines: deadlines, Budget: budget, Grace: 2 * budget, Counter: tokens, Announcement: fairAnnouncement}
)

func owner(n int) string { return fmt.Sprintf("8f8e7c1a-0000-4000-8000-000000000000:%d", 100+n) }

func newFairFixture(t *testing.T) *fairFixture { return &fairFixture{t, redistest.Start(t).Client(t)} }

// heldWith returns a lock that 0 holds, with the given number of waiters in the queue.
func heldWith(t *testing.T, waiters int) *fairFixture {
	t.Helper()
	f := newFairFixture(t)
	f.take(0)
	for n := 1; n <= waiters; n++ {
		f.queueUp(n)
	}
	return f
}

func (f *fairFixture) try(n int, notAfter int64) Answer {
	f.Helper()
	return mustAnswer(f.T, f.rdb, AcquireFair(fairLock, owner(n), lease, notAfter, soon))
}

func (f *fairFixture) take(n int) {
	f.Helper()
	if told := f.try(n, asLong); !told.Granted {
		f.Fatalf("%d: %+v, want it granted", n, told)
	}
	wantHash(f.T, f.rdb, key, map[string]string{owner(n): "1"})
	wantTTL(f.T, f.rdb, key, lease)
}

func (f *fairFixture) queueUp(n int) Answer {
	f.Helper()
	told := f.try(n, asLong)
	if told.Granted || told.Place == 0 {
		f.Fatalf("%d: %+v, want it in the queue", n, told)
	}
	return told
}

// leave releases the lock, or removes a waiter from the queue.
func (f *fairFixture) leave(n int) (freed bool) {
	f.Helper()
	return mustFlag(f.T, f.rdb, ReleaseFair(fairLock, owner(n)))
}

func (f *fairFixture) pass(from, to int, lease time.Duration) Answer {
	f.Helper()
	c := PassFair(fairLock, owner(from), owner(to), lease)
	told, err := c.ReadPass(mustEval(f.T, f.rdb, c))
	if err != nil {
		f.Fatal(err)
	}
	return told
}

// expireDeadline makes the deadline of a waiter pass.
func (f *fairFixture) expireDeadline(n int) {
	f.Helper()
	past := f.rdb.Time(ctx()).Val().Add(-time.Second).UnixMilli()
	if err := f.rdb.Do(ctx(), "ZADD", deadlines, "XX", past, owner(n)).Err(); err != nil {
		f.Fatal(err)
	}
}

// deadline returns when a waiter counts as dead, in ms, as a Redisson script reads it: a number
// without a fraction or an exponent.
func (f *fairFixture) deadline(n int) int64 {
	f.Helper()
	text, err := f.rdb.Eval(ctx(), "return redis.call('ZSCORE', KEYS[1], ARGV[1])", []string{deadlines}, owner(n)).Text()
	if err != nil {
		f.Fatalf("the deadline of %d: %v", n, err)
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f.Fatalf("the deadline of %d: %v", n, err)
	}
	return ms
}

// wantLeft checks how long a waiter has left. It allows for a slow machine.
func (f *fairFixture) wantLeft(n int, want time.Duration) {
	f.Helper()
	got := time.UnixMilli(f.deadline(n)).Sub(f.rdb.Time(ctx()).Val())
	if got > want || got < want-10*time.Second {
		f.Errorf("%d counts as dead in %v, want %v", n, got, want)
	}
}

// wantQueue checks the queue, and that each waiter has at least a budget left for itself and for each
// waiter before it, so that none is dropped early. It may have more until it tries, because others
// have left. Neither key may have a TTL.
func (f *fairFixture) wantQueue(waiters ...int) {
	f.Helper()
	var want []string
	for i, n := range waiters {
		want = append(want, owner(n))
		least := time.Duration(i+1)*budget - 10*time.Second
		if left := time.UnixMilli(f.deadline(n)).Sub(f.rdb.Time(ctx()).Val()); left < least || left > least+5*budget && n < 100 {
			f.Errorf("%d counts as dead in %v, want at least %v", n, left, least)
		}
	}
	if got := f.rdb.LRange(ctx(), queue, 0, -1).Val(); !slices.Equal(got, want) {
		f.Errorf("in the queue: %.300q, want %.300q", got, want)
	}
	if got := f.rdb.ZCard(ctx(), deadlines).Val(); got != int64(len(want)) {
		f.Errorf("%d deadlines, want %d", got, len(want))
	}
	ttl := time.Duration(-1)
	if len(want) == 0 {
		ttl = -2
	}
	for _, k := range []string{queue, deadlines} {
		if got := f.rdb.PTTL(ctx(), k).Val(); got != ttl {
			f.Errorf("PTTL %s: %d, want %d", k, got, ttl)
		}
	}
}

// A waiter that gives up takes no time from the others. Each corrects its deadline when it tries, and
// the next one to queue up is the last. Leaving again changes nothing. Redisson: testAcquireFailedTimeoutDrift_Descrete.
func TestFairDeadlinesWhenOneGivesUp(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 4)
	f.wantQueue(1, 2, 3, 4)
	for range 2 {
		if f.leave(2) {
			t.Error("a waiter has freed the lock")
		}
		f.wantQueue(1, 3, 4)
		for _, n := range []int{4, 1, 3} {
			if told := f.queueUp(n); told.TTL > lease || told.TTL < lease-10*time.Second {
				t.Errorf("%d is told to ask again in %v, want %v", n, told.TTL, lease)
			}
		}
	}
	f.queueUp(5)
	f.wantQueue(1, 3, 4, 5)
	f.leave(1)
	f.wantQueue(3, 4, 5)
	f.leave(5)
	f.wantQueue(3, 4)
	f.queueUp(2)
	f.wantQueue(3, 4, 2)
	for _, n := range []int{4, 3, 2} {
		f.leave(n)
	}
	f.wantQueue()
	wantHash(t, f.rdb, key, map[string]string{owner(0): "1"})
}

// A newcomer behind a waiter whose time is nearly over keeps its place when that one leaves.
func TestFairQueueUp_BehindOneWhoseTimeIsNearlyOver(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 1)
	soonOver := f.rdb.Time(ctx()).Val().Add(lease).UnixMilli()
	f.rdb.ZAdd(ctx(), deadlines, redis.Z{Score: float64(soonOver), Member: owner(1)})
	f.queueUp(2)
	f.leave(1)
	f.wantQueue(2)
}

// When the first waiter gets the lock, those behind it keep their places and their time. Redisson:
// testLockAcquiredTimeoutDrift_Descrete.
func TestFairDeadlinesWhenTheLockIsTaken(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 3)
	f.leave(0)
	for n := 2; n <= 3; n++ { // not their turn
		f.queueUp(n)
	}
	f.wantQueue(1, 2, 3)
	f.take(1)
	f.wantQueue(2, 3)
	for range 2 {
		f.take(1) // its reply was lost
		f.wantQueue(2, 3)
	}
	f.queueUp(4)
	f.leave(1)
	f.take(2)
	f.wantQueue(3, 4)
	f.leave(2)
	f.take(3)
	f.leave(3)
	f.take(4)
	f.wantQueue()
}

// Waiters that keep trying keep their places, however long the lock is held and however many are
// before them.
func TestFairLongHoldKeepsTheOrder(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 3)
	for range 60 { // ten minutes
		for n := 1; n <= 3; n++ {
			f.queueUp(n)
			if err := f.rdb.ZIncrBy(ctx(), deadlines, -10_000, owner(n)).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := 1; n <= 3; n++ {
		f.leave(n - 1)
		for later := 3; later > n; later-- {
			if f.try(later, asLong).Granted {
				t.Fatalf("%d has the lock, although %d was before it", later, n)
			}
		}
		f.take(n)
	}
}

// A caller that does not wait: the first in the queue gets the lock, all others are refused and
// leave no trace. Redisson: testLockAcquiredBooleanTimeoutDrift_Descrete.
func TestFairDeadlinesWhenTheLockIsTakenWithoutWaiting(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 3)
	f.leave(0)
	for _, n := range []int{2, 7} {
		if told := f.try(n, notAtAll); told.Granted || (told.Place > 0) != (n == 2) {
			t.Errorf("%d: %+v", n, told)
		}
	}
	f.wantQueue(1, 2, 3)
	if told := f.try(1, notAtAll); !told.Granted {
		t.Errorf("the first: %+v", told)
	}
	f.wantQueue(2, 3)
	f.leave(2)
	f.wantQueue(3)
	f.leave(3)
	f.leave(1)
	if told := f.try(7, notAtAll); !told.Granted {
		t.Errorf("free lock: %+v", told)
	}
	f.wantQueue()
}

// Overdue waiters are dropped when they are first. Redisson:
// testAbandonedTimeoutDrift_Descrete.
func TestFairDeadlinesWhenWaitersAreDropped(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 4)
	f.expireDeadline(1)
	f.expireDeadline(2)
	f.queueUp(4) // drops them
	f.wantQueue(3, 4)
	f.leave(0)
	f.take(3)
	f.wantQueue(4)
	f.queueUp(1) // it is alive after all, and now the last
	f.wantQueue(4, 1)
	// A dead waiter in the middle is dropped when it is first, not sooner.
	f.queueUp(5)
	f.expireDeadline(1)
	f.leave(3)
	f.take(4)
	if got := f.rdb.LRange(ctx(), queue, 0, -1).Val(); !slices.Equal(got, []string{owner(1), owner(5)}) {
		t.Errorf("in the queue: %q", got)
	}
	f.queueUp(5)
	if got := f.rdb.LRange(ctx(), queue, 0, -1).Val(); !slices.Equal(got, []string{owner(5)}) {
		t.Errorf("in the queue: %q", got)
	}
}

// While the first in the queue is silent, the others are told how long it has left, so that they
// need not try before that. After it was dropped, the next gets the lock. Redisson:
// testFirstThreadDeathTimeoutDrift.
func TestFairDeadlinesWhenTheFirstDies(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 3)
	f.leave(0)
	for n := 2; n <= 3; n++ {
		if told := f.queueUp(n); told.TTL != time.Duration(f.deadline(1)-told.Now)*time.Millisecond {
			t.Errorf("%d is told to ask again in %v; the first has %d ms", n, told.TTL, f.deadline(1)-told.Now)
		}
	}
	f.wantQueue(1, 2, 3)
	f.expireDeadline(1)
	if told := f.try(3, asLong); told.Granted {
		t.Error("the third has overtaken the second")
	}
	f.wantQueue(2, 3)
	f.take(2)
	f.wantQueue(3)
}

// However often the same waiters come and go, their deadlines do not drift into the future. Redisson: testWaitTimeoutDrift, testLockAcquiredTimeoutDrift.
func TestFairDeadlinesDoNotDrift(t *testing.T) {
	t.Parallel()
	for name, round := range map[string]func(f *fairFixture){
		"all give up": func(f *fairFixture) {
			for n := 1; n <= 3; n++ {
				f.leave(n)
			}
		},
		"the last gives up first": func(f *fairFixture) {
			for n := 3; n >= 1; n-- {
				f.leave(n)
			}
		},
		"all get it": func(f *fairFixture) {
			f.leave(0)
			for n := 1; n <= 3; n++ {
				f.take(n)
				f.leave(n)
			}
			f.take(0)
		},
		"some get it": func(f *fairFixture) {
			f.leave(0)
			f.take(1)
			f.leave(3)
			f.leave(1)
			f.take(2)
			f.leave(2)
			f.take(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := heldWith(t, 0)
			for range 20 {
				for n := 1; n <= 3; n++ {
					f.queueUp(n)
				}
				round(f)
				f.wantQueue()
			}
			if err := f.rdb.PExpire(ctx(), key, lease).Err(); err != nil {
				t.Fatal(err)
			}
			f.queueUp(4)
			f.wantQueue(4)
		})
	}
}

// A waiter that still tries is alive. Its deadline is extended once less than half a budget is
// left, not before. The budgets that the waiters before it will take off are not counted.
func TestFairDeadlineIsPutOff(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 3)
	now := f.rdb.Time(ctx()).Val()
	for n := 1; n <= 3; n++ {
		before := time.Duration(n-1) * budget
		for _, tc := range []struct{ before, after time.Duration }{
			{budget*2/3 + lease, budget*2/3 + lease},
			{budget / 3, budget},
			{20 * time.Second, budget},
		} {
			if err := f.rdb.Do(ctx(), "ZADD", deadlines, now.Add(before+tc.before).UnixMilli(), owner(n)).Err(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				f.queueUp(n)
				f.wantLeft(n, before+tc.after)
			}
		}
	}
}

// A stray that arrives after its limit gets no place. A lock that never expires does not move
// deadlines back.
func TestFairQueueUp(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 0)
	if told := f.try(1, f.rdb.Time(ctx()).Val().Add(-time.Second).UnixMilli()); told.Granted || told.Place != 0 {
		t.Errorf("a stray: %+v", told)
	}
	f.wantQueue()
	if err := f.rdb.Persist(ctx(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if told := f.queueUp(1); told.TTL != -time.Millisecond {
		t.Errorf("a lock that never expires: %+v", told)
	}
	f.wantQueue(1)
	// A waiter without a deadline, which only a fault leaves, counts as a budget too.
	if err := f.rdb.RPush(ctx(), queue, "nobody:1").Err(); err != nil {
		t.Fatal(err)
	}
	f.queueUp(2)
	f.wantLeft(2, 3*budget)
}

// A release notifies the first waiter on its own channel, and no other. A repeat may notify it
// again.
func TestFairMessages(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 0)
	heard := tap(t, f.rdb)
	to := func(n int) string { return toFirst + owner(n) + " 0" }
	if !f.leave(0) || f.leave(0) {
		t.Error("the holder frees it once")
	}
	heard.want(t, f.rdb) // the queue is empty
	f.take(0)
	f.queueUp(1)
	f.queueUp(2)
	f.queueUp(3)
	f.leave(3)
	heard.want(t, f.rdb) // the lock is still held
	if !f.leave(0) {
		t.Error("not freed")
	}
	heard.want(t, f.rdb, to(1))
	if f.leave(0) {
		t.Error("freed once more")
	}
	heard.want(t, f.rdb, to(1))
	f.leave(1) // it was notified and leaves
	heard.want(t, f.rdb, to(2))
	f.take(2)
	f.queueUp(3)
	f.queueUp(4)
	f.expireDeadline(3)
	if !f.leave(2) {
		t.Error("not freed")
	}
	heard.want(t, f.rdb, to(3), to(4)) // 3 is dropped, but would queue up again if it lives
	f.wantQueue(4)
	wantHash(t, f.rdb, key, nil)
}

// A release of a lost lock replies 0, where Redisson's unlock replies 1. It notifies the first
// waiter as well.
func TestFairReleaseOfALostLock(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 1)
	heard := tap(t, f.rdb)
	f.rdb.Del(ctx(), key)
	if f.leave(0) {
		t.Error("freed what was gone")
	}
	heard.want(t, f.rdb, toFirst+owner(1)+" 0")
	f.take(1)
	if f.leave(0) {
		t.Error("freed what another holds")
	}
	heard.want(t, f.rdb)
	wantHash(t, f.rdb, key, map[string]string{owner(1): "1"})
}

func TestFairForceRelease(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 3)
	heard := tap(t, f.rdb)
	f.expireDeadline(1)
	for _, tc := range []struct {
		owners []string
		freed  bool
		heard  []string
	}{
		{nil, false, nil},
		{[]string{"somebody:1"}, false, nil},
		{[]string{"somebody:1", owner(0)}, true, []string{toFirst + owner(1) + " 0", toFirst + owner(2) + " 0"}},
		{[]string{"somebody:1", owner(0)}, false, nil}, // a repeat
	} {
		if freed := mustFlag(t, f.rdb, ForceReleaseFair(fairLock, tc.owners)); freed != tc.freed {
			t.Errorf("%q: freed %v, want %v", tc.owners, freed, tc.freed)
		}
		heard.want(t, f.rdb, tc.heard...)
	}
	wantHash(t, f.rdb, key, nil)
	f.wantQueue(2, 3)
}

// A fair lock is handed over to a waiter that is first in the queue, as if it were released and
// taken. If the waiter is not first, the lock is freed and the first is notified.
func TestFairPass(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 4)
	heard := tap(t, f.rdb)
	pass := func(from, to int) Answer { t.Helper(); return f.pass(from, to, time.Hour) }
	for range 3 { // repeats
		if told := pass(0, 1); told != (Answer{Granted: true}) {
			t.Errorf("to the first: %+v", told)
		}
		wantHash(t, f.rdb, key, map[string]string{owner(1): "1"})
		wantTTL(t, f.rdb, key, time.Hour)
		f.wantQueue(2, 3, 4)
	}
	if told := pass(0, 2); told != (Answer{}) { // 0 no longer holds it
		t.Errorf("from one that does not hold it: %+v", told)
	}
	heard.want(t, f.rdb)
	for i, want := range []Answer{{Freed: true}, {}, {}} {
		if told := pass(1, 3); told != want {
			t.Errorf("to the second: %+v, want %+v", told, want)
		}
		wantHash(t, f.rdb, key, nil)
		f.wantQueue(2, 3, 4)
		if i == 0 {
			heard.want(t, f.rdb, toFirst+owner(2)+" 0")
		}
	}
	heard.want(t, f.rdb)

	f.take(2)
	f.expireDeadline(3)
	// Dropping the waiter before it shifts no deadline.
	if told := pass(2, 4); !told.Granted {
		t.Errorf("to the first that is alive: %+v", told)
	}
	f.wantQueue()
	if told := pass(4, 5); !told.Freed {
		t.Errorf("to one that is not in the queue: %+v", told)
	}
	heard.want(t, f.rdb, toFirst+owner(3)+" 0")
}

// Any of the keys of a fair lock may be lost, by eviction or by hand. Each waiter that keeps trying
// gets the lock once in the end, and nothing is left.
func TestFairHealsWhateverIsLost(t *testing.T) {
	t.Parallel()
	for _, lost := range [][]string{{queue}, {deadlines}, {key}, {queue, deadlines}, {key, queue}, {key, deadlines}} {
		for _, when := range []string{"held", "free"} {
			t.Run(fmt.Sprint(when, " ", lost), func(t *testing.T) {
				t.Parallel()
				f := heldWith(t, 3)
				if when == "free" {
					f.leave(0)
				}
				f.rdb.Del(ctx(), lost...)
				granted := make(map[int]int)
				for range 6 {
					for _, n := range []int{3, 1, 2} {
						if granted[n] == 0 && f.try(n, asLong).Granted {
							granted[n]++
							f.leave(n)
						}
						places := f.rdb.LRange(ctx(), queue, 0, -1).Val()
						if slices.Sort(places); len(slices.Compact(slices.Clone(places))) < len(places) {
							t.Errorf("a waiter has two places: %q", places)
						}
					}
					f.leave(0)
				}
				for n := 1; n <= 3; n++ {
					if granted[n] != 1 {
						t.Errorf("%d was granted %d times", n, granted[n])
					}
				}
				if keys := f.rdb.Keys(ctx(), "*").Val(); len(keys) > 0 {
					t.Errorf("left: %q", keys)
				}
			})
		}
	}
}

// Deadlines of dead waiters whose queue is lost go with the last owner, however it ends.
func TestFairDeadlinesWithoutAQueue(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *fairFixture){
		"the holder releases":  func(f *fairFixture) { f.leave(0) },
		"a waiter takes turns": func(f *fairFixture) { f.queueUp(3); f.leave(0); f.take(3); f.leave(3) },
		"a waiter gives up":    func(f *fairFixture) { f.queueUp(3); f.leave(0); f.leave(3) },
		"the place is unknown": func(f *fairFixture) { f.rdb.Del(ctx(), key); f.leave(3) },
		"handed over":          func(f *fairFixture) { f.queueUp(3); f.pass(0, 3, lease); f.leave(3) },
		"to be handed over":    func(f *fairFixture) { f.pass(0, 3, lease) },
		"the holder is forced": func(f *fairFixture) { mustFlag(t, f.rdb, ForceReleaseFair(fairLock, []string{owner(0)})) },
		"the next dies":        func(f *fairFixture) { f.rdb.Del(ctx(), key); f.take(3); f.rdb.Del(ctx(), key) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := heldWith(t, 2)
			f.rdb.Del(ctx(), queue)
			end(f)
			if keys := f.rdb.Keys(ctx(), "*").Val(); len(keys) > 0 {
				t.Errorf("left: %q", keys)
			}
		})
	}
}

// A waiter that is in the queue twice leaves it completely. Redisson's scripts add it twice if the
// deadlines are lost.
func TestFairWaiterInTheQueueTwice(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *fairFixture){
		"granted": func(f *fairFixture) { f.leave(0); f.take(1); f.leave(1) },
		"leaves":  func(f *fairFixture) { f.leave(1); f.leave(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := heldWith(t, 1)
			f.rdb.RPush(ctx(), queue, owner(2), owner(1))
			end(f)
			if got := f.rdb.LRange(ctx(), queue, 0, -1).Val(); !slices.Equal(got, []string{owner(2)}) {
				t.Errorf("in the queue: %q", got)
			}
			f.try(3, asLong)
			f.wantLeft(2, budget) // it had no deadline, so it would never have been dropped
		})
	}
}

// A fair lock can be released in two steps: first the hash alone, which notifies no waiter, and
// later the rest.
func TestFairReleaseInTwo(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 1)
	messages := f.rdb.Subscribe(ctx(), toFirst+owner(1))
	defer messages.Close()
	if _, err := messages.Receive(ctx()); err != nil {
		t.Fatal(err)
	}
	whole := ReleaseFair(fairLock, owner(0))
	alone, ok := whole.HashAlone()
	if !ok || !mustFlag(t, f.rdb, alone) || f.rdb.Exists(ctx(), key).Val() != 0 {
		t.Fatal("the hash was not freed")
	}
	f.wantQueue(1)
	if mustFlag(t, f.rdb, whole) {
		t.Error("freed twice")
	}
	if _, err := messages.ReceiveMessage(ctx()); err != nil {
		t.Errorf("the first in the queue is not told: %v", err)
	}
	f.take(1)
}

// Which releases can be split in two steps. The marker of a Once, a record or a remaining level
// cannot wait.
func TestHashAlone(t *testing.T) {
	t.Parallel()
	readWrite := func(reads, writes int, timeouts ...string) Call {
		return UpdateReadWrite(ReadWriteHold{Key: key, Timeouts: timeouts, Owner: owner(0), Reads: reads, Writes: writes}, 0, fairAnnouncement)
	}
	for name, test := range map[string]struct {
		call Call
		want bool
	}{
		"plain":             {Release(key, owner(0), fairAnnouncement), false},
		"fair":              {ReleaseFair(fairLock, owner(0)), true},
		"write":             {readWrite(0, 0), false},
		"read":              {readWrite(0, 0, "1"), true},
		"a level stays":     {readWrite(1, 0, "1", "2"), false},
		"a writer stays":    {readWrite(0, 1, "1"), false},
		"once with marker":  {OnceRelease(key, "record", owner(0), Removal{Gone: true}, fairAnnouncement), false},
		"once, with record": {OnceRecord(key, "record", owner(0), 0, Record{Value: "done", TTL: time.Second}, fairAnnouncement), false},
		"acquire":           {AcquireFair(fairLock, owner(0), lease, 0, 0), false},
	} {
		alone, ok := test.call.HashAlone()
		if ok != test.want {
			t.Errorf("%s: %v, want %v", name, ok, test.want)
		}
		if ok && (alone.args[firstKey-1] != 1 || alone.Key() != key) {
			t.Errorf("%s: %v, want the hash alone among its keys", name, alone.args)
		}
	}
}

// All dead waiters are dropped together, wherever they are in the queue, by scripts that each look at
// a part of it. Live waiters stay.
func TestFairThousandsOfDead(t *testing.T) {
	t.Parallel()
	const n = 2000
	f := heldWith(t, 0)
	pipe := f.rdb.Pipeline()
	alive := []int{700, 1300, n}
	for i := 1; i <= n; i++ {
		pipe.RPush(ctx(), queue, owner(i))
		pipe.Do(ctx(), "ZADD", deadlines, time.Now().Add(time.Duration(i)*budget).UnixMilli(), owner(i))
	}
	if _, err := pipe.Exec(ctx()); err != nil {
		t.Fatal(err)
	}
	f.listening(alive...)
	lock := counting(time.Minute)
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(0)))
	look := func() (calls int) { // until no more is to be done at once
		for told := (Answer{}); told.TTL <= 0 && !told.Granted; calls++ {
			told = f.tryFor(lock, n)
		}
		return calls
	}
	if calls := look(); calls > n/batch+2 {
		t.Errorf("%d calls to look at %d waiters", calls, n)
	}
	if got, want := f.missing(), n-len(alive); got != want {
		t.Errorf("%d absent, want %d", got, want)
	}
	f.sinceLongAgo(time.Minute)
	if calls := look(); calls > n/batch+2 {
		t.Errorf("%d calls to drop %d waiters", calls, n)
	}
	var want []string
	for _, i := range alive {
		want = append(want, owner(i))
	}
	if got := f.rdb.LRange(ctx(), queue, 0, -1).Val(); !slices.Equal(got, want) {
		t.Errorf("%d are left, want the %d that live: %.300q", len(got), len(want), got)
	}
}

// batch is that of fair_queue.lua.
const batch = 100

// A first waiter that listens and leaves the free lock alone loses its place, with the others of its
// process that do not try either. Those of a JVM keep theirs. It queues up again.
func TestFairFrozenWaiter(t *testing.T) {
	t.Parallel()
	f := newFairFixture(t)
	lock := counting(time.Minute)
	ours := func(process string, n int) string { return fmt.Sprintf("%s.1.abc:%d", process, n) }
	try := func(owner string) Answer { return mustAnswer(t, f.rdb, AcquireFair(lock, owner, lease, asLong, soon)) }
	places := func() []string { return f.rdb.LRange(ctx(), queue, 0, -1).Val() }
	later := func(d time.Duration) { // all deadlines come nearer
		for _, z := range f.rdb.ZRangeWithScores(ctx(), deadlines, 0, -1).Val() {
			f.rdb.ZIncrBy(ctx(), deadlines, -float64(d.Milliseconds()), z.Member.(string))
		}
	}
	f.take(0)
	all := []string{ours("frozen", 1), ours("live", 1), ours("frozen", 2), owner(1), ours("frozen", 3)}
	ps := f.rdb.Subscribe(ctx())
	defer ps.Close()
	for _, o := range all {
		try(o)
		_ = ps.Subscribe(ctx(), toFirst+o)
		_, _ = ps.Receive(ctx())
	}
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(0)))
	if told := try(all[1]); told.Granted || told.TTL > time.Minute {
		t.Errorf("the second: %+v, want it to look again within a minute", told)
	}
	later(59 * time.Second)
	if try(all[1]).Granted || len(places()) != len(all) {
		t.Errorf("the frozen one has lost its place early: %q", places())
	}
	later(time.Second)
	heard := tap(t, f.rdb)
	if !try(all[1]).Granted {
		t.Error("the second does not get the lock")
	}
	heard.want(t, f.rdb, toFirst+all[0]+" 0", toFirst+all[2]+" 0", toFirst+all[4]+" 0") // to try if they live
	later(30 * time.Second)
	try(ours("frozen", 3)) // this one goes on
	later(30 * time.Second)
	if try(all[0]).Granted { // and so does the first
		t.Error("two have the lock")
	}
	if got, want := places(), []string{all[3], all[4], all[0]}; !slices.Equal(got, want) {
		t.Errorf("in the queue: %q, want %q", got, want)
	}
}

// Waiters that leave together leave in one script.
func TestFairManyLeave(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 5)
	one := func(n int) Call { return ReleaseFair(fairLock, owner(n)) }
	if c := one(1); !c.Joins(one(2)) || c.Joins(Release(key, owner(2), fairAnnouncement)) {
		t.Error("which calls can be joined is wrong")
	}
	if _, ok := Join([]Call{one(1), one(2)}).HashAlone(); ok {
		t.Error("several releases are split")
	}
	for range 2 { // a repeat
		if mustFlag(t, f.rdb, Join([]Call{one(1), one(4), one(2), one(7)})) {
			t.Error("freed a lock that another holds")
		}
		f.wantQueue(3, 5)
	}
	heard := tap(t, f.rdb)
	if !mustFlag(t, f.rdb, Join([]Call{one(3), one(0)})) {
		t.Error("the hold among them is not freed")
	}
	heard.want(t, f.rdb, toFirst+owner(5)+" 0")
	mustFlag(t, f.rdb, Join([]Call{one(5), one(3)}))
	if keys := f.rdb.Keys(ctx(), "*").Val(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}
