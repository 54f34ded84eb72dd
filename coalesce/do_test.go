package coalesce

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

var errBroken = errors.New("the report is broken")

// A returned is what Do returns.
type returned[T any] struct {
	result T
	shared bool
	err    error
}

// A crowd has callers of one key in several processes. Their run goes on until finish is called.
type crowd[T any] struct {
	t       *testing.T
	rdb     *redis.Client
	clients []*core.Client
	running chan struct{} // receives when a run begins
	ends    chan func() (T, error)
	answers chan returned[T]
	callers int
}

func newCrowd[T any](t *testing.T, processes int) *crowd[T] {
	s := redistest.Start(t)
	c := &crowd[T]{t: t, rdb: s.Client(t), running: make(chan struct{}, 1000), ends: make(chan func() (T, error), 1000), answers: make(chan returned[T], 1000)}
	for range processes {
		c.clients = append(c.clients, newLocks(t, s))
	}
	return c
}

// call calls Do in one of the processes.
func (c *crowd[T]) call(ctx context.Context, process int, opts Options) {
	c.callers++
	go func() {
		result, shared, err := Do(ctx, c.clients[process], "report", opts, func(ctx context.Context) (T, error) {
			c.running <- struct{}{}
			select {
			case end := <-c.ends:
				return end()
			case <-ctx.Done():
				var none T
				return none, ctx.Err()
			}
		})
		c.answers <- returned[T]{result, shared, err}
	}()
}

// begin calls Do, and waits until fn runs.
func (c *crowd[T]) begin(ctx context.Context, process int, opts Options) {
	c.t.Helper()
	c.call(ctx, process, opts)
	receive(c.t, "a run", c.running)
}

// gather waits until so many callers wait for the run.
func (c *crowd[T]) gather(waiting int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprint(waiting, " callers wait"), func() bool {
		n := 0
		for _, locks := range c.clients {
			n += locks.Stats().Waiting + waitingWith(locks)
		}
		return n == waiting
	})
}

// waitingWith returns how many callers of a client wait in memory.
func waitingWith(locks *core.Client) (n int) {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	for key, g := range groups.byKey {
		if key.locks == locks {
			n += g.waiting
		}
	}
	return n
}

func (c *crowd[T]) finish(result T, err error) { c.ends <- func() (T, error) { return result, err } }

func (c *crowd[T]) answer() returned[T] {
	c.t.Helper()
	return receive(c.t, "an answer", c.answers)
}

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("timed out waiting for %s", what)
		panic("unreachable")
	}
}

// A thousand callers in three processes get the result of one run, each a value of its own.
func TestDo_OneRunForAll(t *testing.T) {
	t.Parallel()
	c := newCrowd[map[string]int](t, 3)
	c.begin(bg, 0, Options{})
	for i := range 999 {
		c.call(bg, i%3, Options{})
	}
	c.gather(999)
	c.finish(map[string]int{"sold": 7}, nil)
	shared := 0
	for range 1000 {
		a := c.answer()
		if a.err != nil || a.result["sold"] != 7 {
			t.Fatalf("%v, %v", a.result, a.err)
		}
		a.result["sold"]++ // seen by no other
		if a.shared {
			shared++
		}
	}
	if shared != 999 || len(c.running) > 0 {
		t.Errorf("%d of 1000 answers are shared, and %d more ran", shared, len(c.running))
	}
	_, of, _ := strings.Cut(c.rdb.Info(bg, "commandstats").Val(), "cmdstat_evalsha:calls=")
	calls, err := strconv.Atoi(strings.SplitN(of, ",", 2)[0])
	if err != nil || calls > 12 {
		t.Errorf("%d scripts were sent (%v); want a few of each process", calls, err)
	}
}

// A result is kept for Keep, and not for longer.
func TestDo_Keep(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	for i, want := range []bool{false, true} {
		c.finish(i, nil)
		c.call(bg, i, Options{Keep: time.Hour})
		if a := c.answer(); a.result != 0 || a.shared != want || a.err != nil {
			t.Errorf("call %d: %+v", i, a)
		}
	}
	brief := newCrowd[int](t, 1)
	for i := range 2 {
		brief.finish(i, nil)
		brief.call(bg, 0, Options{Keep: time.Millisecond})
		if a := brief.answer(); a.result != i || a.shared || a.err != nil {
			t.Errorf("call %d after Keep: %+v", i, a)
		}
		eventually(t, "the record expires", func() bool {
			record, err := brief.clients[0].Once("report").Record(bg)
			return record == nil && err == nil
		})
	}
}

// Those who wait share the error of a run by its text, unless ErrorFor says that the next one runs.
func TestDo_Error(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	c.begin(bg, 0, Options{ErrorFor: time.Minute}) // however long those who wait take to ask again
	c.call(bg, 0, Options{})
	c.call(bg, 1, Options{})
	c.gather(2)
	c.finish(0, errBroken)
	for range 3 {
		a := c.answer()
		var shared *Error
		if a.err == nil || a.err.Error() != errBroken.Error() || a.shared != errors.As(a.err, &shared) || !a.shared && a.err != errBroken {
			t.Errorf("%+v", a)
		}
	}
	if len(c.running) > 0 {
		t.Error("another caller ran")
	}

	alone := newCrowd[int](t, 1)
	for range 3 {
		alone.finish(0, errBroken)
		alone.call(bg, 0, Options{ErrorFor: -1})
	}
	for range 3 {
		if a := alone.answer(); a.err != errBroken || a.shared {
			t.Errorf("with ErrorFor -1: %+v", a)
		}
	}
}

// A run that panics or ends its goroutine is an error for those who wait.
func TestDo_Panic(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd[int](t, 2)
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				_, _, _ = Do(bg, c.clients[0], "report", Options{}, func(context.Context) (int, error) {
					c.running <- struct{}{}
					c.gather(1)
					end()
					return 0, nil
				})
			}()
			receive(t, "the run", c.running)
			c.call(bg, 1, Options{})
			if a := c.answer(); a.err == nil || a.err.Error() != panicked || !a.shared {
				t.Errorf("%+v", a)
			}
			if p := receive(t, "the end", ended); (p == "boom") != (name == "panic") {
				t.Errorf("the panic is %v", p)
			}
		})
	}
}

// The end of the caller's context ends neither the run nor the wait of others.
func TestDo_CallerLeaves(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	ctx, leave := context.WithCancel(bg)
	c.begin(ctx, 0, Options{})
	c.call(bg, 1, Options{})
	c.gather(1)
	waiting, leaveToo := context.WithCancelCause(bg)
	c.call(waiting, 1, Options{})
	c.gather(2)
	leave()
	leaveToo(errBroken)
	if a := c.answer(); !errors.Is(a.err, context.Canceled) || !errors.Is(a.err, errBroken) || !errors.Is(a.err, core.ErrStillHeld) {
		t.Errorf("the caller that waits: %+v, %v", a, a.err)
	}
	c.finish(5, nil)
	for range 2 {
		if a := c.answer(); a.err != nil || a.result != 5 {
			t.Errorf("%+v", a)
		}
	}
}

// When LeaseTime is over, as after the death of a process, one of those who wait runs.
func TestDo_LeaseTime(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	c.begin(bg, 0, Options{LeaseTime: 200 * time.Millisecond})
	c.call(bg, 1, Options{})
	if a := c.answer(); !errors.Is(a.err, core.ErrLockLost) || !errors.Is(a.err, context.Canceled) || a.shared {
		t.Errorf("the run whose lease is over: %+v", a)
	}
	receive(t, "the next run", c.running)
	c.finish(5, nil)
	if a := c.answer(); a.err != nil || a.result != 5 || a.shared {
		t.Errorf("the next run: %+v", a)
	}
}

func TestDo_WaitTime(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	c.begin(bg, 0, Options{})
	c.call(bg, 1, Options{WaitTime: time.Millisecond})
	if a := c.answer(); !errors.Is(a.err, core.ErrNotAcquired) {
		t.Errorf("%+v", a)
	}
	c.finish(5, nil)
	c.answer()
}

// Only with FailOpen does a caller run while Redis is down.
func TestDo_FailOpen(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks := newLocks(t, s)
	s.Kill(t)
	one := func(context.Context) (int, error) { return 1, nil }
	for _, open := range []bool{false, true} {
		result, shared, err := Do(bg, locks, "report", Options{FailOpen: open}, one)
		if shared || (err == nil) != open || (result == 1) != open {
			t.Errorf("FailOpen %v: %d, %v, %v", open, result, shared, err)
		}
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, _, err := Do(ctx, locks, "report", Options{FailOpen: true}, one); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}

// A result that cannot be encoded is an error, and the next caller runs. One of another type is an
// error, too.
func TestDo_Codec(t *testing.T) {
	t.Parallel()
	locks := newLocks(t, redistest.Start(t))
	for range 2 {
		ran := false
		_, shared, err := Do(bg, locks, "report", Options{}, func(context.Context) (chan int, error) {
			ran = true
			return make(chan int), nil
		})
		if !ran || shared || err == nil || !strings.Contains(err.Error(), "a chan int cannot be shared") {
			t.Errorf("a channel: ran %v, %v, %v", ran, shared, err)
		}
	}
	if _, _, err := Do(bg, locks, "report", Options{}, func(context.Context) (string, error) { return "text", nil }); err != nil {
		t.Fatal(err)
	}
	_, shared, err := Do(bg, locks, "report", Options{}, func(context.Context) (int, error) { return 0, nil })
	if !shared || err == nil || !strings.Contains(err.Error(), "is no *int") {
		t.Errorf("a number: %v, %v", shared, err)
	}
	text, shared, err := Do(bg, locks, "report", Options{Codec: upper{}}, func(context.Context) (string, error) { return "", nil })
	if text != `"TEXT"` || !shared || err != nil {
		t.Errorf("the codec: %q, %v, %v", text, shared, err)
	}
}

// upper is a Codec of strings.
type upper struct{}

func (upper) Marshal(result any) ([]byte, error) { return []byte(result.(string)), nil }
func (upper) Unmarshal(data []byte, result any) error {
	*result.(*string) = strings.ToUpper(string(data))
	return nil
}

func TestDo_Invalid(t *testing.T) {
	t.Parallel()
	locks := newLocks(t, redistest.Start(t))
	for name, test := range map[string]struct {
		key  string
		opts Options
		want error
	}{
		"no key":             {"", Options{}, core.ErrInvalidName},
		"a negative wait":    {"a", Options{WaitTime: -2}, ErrInvalidOptions},
		"waits and does not": {"a", Options{WaitTime: core.WaitForever, FailOpen: true}, ErrInvalidOptions},
		"a short Keep":       {"a", Options{Keep: 1}, ErrInvalidOptions},
		"a long Keep":        {"a", Options{Keep: 2 * time.Hour}, ErrInvalidOptions},
		"a short ErrorFor":   {"a", Options{ErrorFor: 1}, ErrInvalidOptions},
		"a long ErrorFor":    {"a", Options{ErrorFor: 2 * time.Hour}, ErrInvalidOptions},
		"a negative lease":   {"a", Options{LeaseTime: -1}, ErrInvalidOptions},
		"even with FailOpen": {"", Options{FailOpen: true}, core.ErrInvalidName},
	} {
		_, _, err := Do(bg, locks, test.key, test.opts, func(context.Context) (int, error) { t.Error(name, "ran"); return 0, nil })
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	_, _, err := Do(bg, nil, "a", Options{}, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
	if !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), "no *core.Client") {
		t.Errorf("without a client: %v", err)
	}
}

// A record of another program is an error, and no result.
func TestDo_OtherRecord(t *testing.T) {
	t.Parallel()
	locks := newLocks(t, redistest.Start(t))
	lease, _, err := locks.Once("report").Acquire(bg, core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.ReleaseWith(bg, []byte("x"), time.Minute); err != nil {
		t.Fatal(err)
	}
	_, _, err = Do(bg, locks, "report", Options{}, func(context.Context) (int, error) { return 0, nil })
	if err == nil || !strings.Contains(err.Error(), "not of this package") {
		t.Error(err)
	}
}

// A result that Redis refuses is not shared. The caller that ran has it.
func TestDo_NotShared(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locks, rdb := newLocks(t, s), s.Client(t)
	for i, key := range []string{"first", "report", "report"} { // the first loads the scripts
		text, shared, err := Do(bg, locks, key, Options{}, func(context.Context) (string, error) {
			if i > 0 {
				rdb.ConfigSet(bg, "maxmemory", "1")
			}
			return "text", nil
		})
		rdb.ConfigSet(bg, "maxmemory", "0")
		if text != "text" || shared || err != nil {
			t.Errorf("%s, call %d: %q, %v, %v", key, i, text, shared, err)
		}
		eventually(t, "the lock is free", func() bool { return rdb.Exists(bg, key).Val() == 0 })
	}
}
