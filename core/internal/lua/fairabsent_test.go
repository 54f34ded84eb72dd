package lua

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// listening makes waiters listen on their channels until the returned function is called.
func (f *fairFixture) listening(waiters ...int) (stop func()) {
	f.Helper()
	ps := f.rdb.Subscribe(ctx())
	f.Cleanup(func() { _ = ps.Close() })
	for _, n := range waiters {
		if err := ps.Subscribe(ctx(), toFirst+owner(n)); err != nil {
			f.Fatal(err)
		}
		if _, err := ps.Receive(ctx()); err != nil {
			f.Fatal(err)
		}
	}
	return func() {
		_ = ps.Close()
		for _, n := range waiters {
			channel := toFirst + owner(n)
			for f.rdb.PubSubNumSub(ctx(), channel).Val()[channel] > 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// counting returns a fair lock whose listeners are counted.
func counting(grace time.Duration) *Fair {
	f := *fairLock
	f.Grace, f.Counts = grace, grace > 0
	return &f
}

// tryFor takes or queues up for the lock of counting.
func (f *fairFixture) tryFor(lock *Fair, n int) Answer {
	f.Helper()
	return mustAnswer(f.T, f.rdb, AcquireFair(lock, owner(n), lease, asLong, soon))
}

const absentees = deadlines + ":absent"

// missing returns how many waiters had no listener when their turn came.
func (f *fairFixture) missing() int {
	noted := f.rdb.HGetAll(ctx(), absentees).Val()
	delete(noted, "next")
	delete(noted, "due")
	return len(noted)
}

// sinceLongAgo makes waiters absent for d longer.
func (f *fairFixture) sinceLongAgo(d time.Duration) {
	f.Helper()
	for n, since := range f.rdb.HGetAll(ctx(), absentees).Val() {
		if n == "next" {
			continue
		}
		ms, err := strconv.ParseInt(since, 10, 64)
		if err != nil {
			f.Fatal(err)
		}
		f.rdb.HSet(ctx(), absentees, n, ms-d.Milliseconds())
	}
}

// If the server's clock was set back, a dead waiter is absent since a time to come. It is dropped
// after the grace period all the same.
func TestFairAbsentSinceATimeToCome(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 2)
	lock := counting(time.Minute)
	f.listening(2)
	if !mustFlag(t, f.rdb, ReleaseFair(lock, owner(0))) {
		t.Fatal("not freed")
	}
	f.sinceLongAgo(-10 * time.Minute)
	f.tryFor(lock, 2)
	f.sinceLongAgo(time.Minute)
	if told := f.tryFor(lock, 2); !told.Granted {
		t.Errorf("%+v, want the lock: the first is dead", told)
	}
}

// A dead waiter is dropped when it has had no listener for the grace period while the lock was
// free. Several dead ones are dropped together. A live one is never dropped.
func TestFairAbsentWaiters(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 5)
	lock := counting(time.Minute)
	stop := f.listening(3, 5)
	for range 2 { // while the lock is held, listeners are not checked
		f.tryFor(lock, 5)
	}
	if n := f.missing(); n != 0 {
		t.Errorf("%d absent while the lock is held", n)
	}
	if !mustFlag(t, f.rdb, ReleaseFair(lock, owner(0))) {
		t.Fatal("not freed")
	}
	if n := f.missing(); n != 3 {
		t.Errorf("%d absent after the release, want all that do not listen", n)
	}
	if ttl := f.rdb.PTTL(ctx(), absentees).Val(); ttl <= 0 {
		t.Error("the notes on absent waiters do not expire")
	}
	if told := f.tryFor(lock, 5); told.Granted || told.TTL != soon {
		t.Errorf("the fifth: %+v, want it to look again soon", told)
	}
	f.sinceLongAgo(59 * time.Second)
	f.tryFor(lock, 5)
	f.wantQueue(1, 2, 3, 4, 5)
	f.sinceLongAgo(time.Second)
	if told := f.tryFor(lock, 5); told.Granted {
		t.Error("the fifth has the lock before the third")
	}
	if got := f.rdb.LRange(ctx(), queue, 0, -1).Val(); !slices.Equal(got, []string{owner(3), owner(5)}) {
		t.Errorf("in the queue: %q, want the third and the fifth", got)
	}
	f.wantLeft(3, time.Minute) // it was told that its turn has come
	if n := f.missing(); n != 0 {
		t.Errorf("%d absent after they were dropped", n)
	}
	if told := f.tryFor(lock, 5); told.Granted || told.TTL <= soon {
		t.Errorf("the fifth: %+v, want it to leave the third its time", told)
	}

	stop() // the third reconnects
	f.tryFor(lock, 5)
	f.sinceLongAgo(59 * time.Second)
	f.listening(3, 5)
	f.tryFor(lock, 5)
	if n := f.missing(); n != 0 {
		t.Errorf("%d absent, and the first is back", n)
	}
	f.take(3)
	f.leave(3)
	if told := f.tryFor(lock, 5); !told.Granted {
		t.Errorf("the last: %+v", told)
	}
	f.wantQueue()
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(5)))
	if keys := f.rdb.Keys(ctx(), "*").Val(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// A waiter without a listener that tries by itself gets the lock. The note on a waiter that leaves
// is deleted.
func TestFairAbsentWaiterThatAsks(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 3)
	lock := counting(time.Minute)
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(0)))
	f.tryFor(lock, 3)
	f.leave(1)
	if told := f.tryFor(lock, 2); !told.Granted {
		t.Errorf("the first that asks: %+v", told)
	}
	if n := f.missing(); n != 0 {
		t.Errorf("%d absent", n)
	}
}

// The first in the queue is back before another waiter leaves. Its next absence begins anew.
func TestFairAbsentWaiterThatIsBack(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 3)
	lock := counting(time.Minute)
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(0)))
	if n := f.missing(); n != 3 {
		t.Fatalf("%d absent after the release, want all", n)
	}
	f.sinceLongAgo(time.Hour)
	stop := f.listening(1)
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(3)))
	if n := f.missing(); n != 1 {
		t.Errorf("%d absent, want the second: the first is back", n)
	}
	stop()
	if told := f.tryFor(lock, 2); told.Granted {
		t.Error("the first was passed over, although it listened a moment ago")
	}
}

// The search for dead waiters begins anew when the first has just lost its listener. Those behind it
// keep the rest of their grace period.
func TestFairAbsentWaiterBehindAnother(t *testing.T) {
	t.Parallel()
	f := heldWith(t, 4)
	lock := counting(time.Minute)
	stop := f.listening(2)
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(0)))
	if n := f.missing(); n != 3 {
		t.Fatalf("%d absent after the release, want all but the second", n)
	}
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(1)))
	stop()
	mustFlag(t, f.rdb, ReleaseFair(lock, owner(4)))
	f.wantQueue(2, 3)
}

// If listeners cannot be counted, waiters are notified and never dropped.
func TestFairListenersThatCannotBeCounted(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func() (*Fair, []any){
		"not here":   func() (*Fair, []any) { lock := *counting(time.Minute); lock.Counts = false; return &lock, nil },
		"no channel": func() (*Fair, []any) { return counting(time.Minute), []any{"~*", "resetchannels", "+@all"} },
		"no command": func() (*Fair, []any) { return counting(time.Minute), []any{"~*", "&*", "+@all", "-publish"} },
		"no counts":  func() (*Fair, []any) { return counting(time.Minute), []any{"~*", "&*", "+@all", "-pubsub"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			f := &fairFixture{t, srv.Client(t)}
			lock, rules := lock()
			if rules != nil {
				f.rdb = asUser(t, srv, rules...)
			}
			f.take(0)
			f.queueUp(1)
			f.queueUp(2)
			mustFlag(t, f.rdb, ReleaseFair(lock, owner(0)))
			if told := f.tryFor(lock, 2); told.Granted || told.TTL <= soon {
				t.Errorf("the second: %+v", told)
			}
			if n := f.missing(); n != 0 {
				t.Errorf("%d absent", n)
			}
		})
	}
}
