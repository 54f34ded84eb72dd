package coalesce

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/ctxvalue"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A got is what Do returns.
type got struct {
	result int
	shared bool
	err    error
}

// underWay returns how many groups a client has.
func underWay(locks *core.Client) (n int) {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	for key := range groups.byKey {
		if key.locks == locks {
			n++
		}
	}
	return n
}

// A group is forgotten when no one leads it or waits for it, in whichever order they go.
func TestGroup_Forgotten(t *testing.T) {
	t.Parallel()
	locks := newLocks(t, redistest.Start(t))
	key := groupKey{locks: locks, key: "report"}
	for name, end := range map[string]func(g *group, l *lead){
		"it lands": func(g *group, l *lead) { l.land(&outcome{}) },
		"the leader cedes first": func(g *group, l *lead) {
			l.cede()
			g.leave()
		},
		"the one that waits leaves first": func(g *group, l *lead) {
			g.leave()
			l.cede()
		},
		"the one that waits leads": func(g *group, l *lead) {
			l.cede()
			<-g.lead
			g.take().cede()
		},
		"a lead ends twice": func(g *group, l *lead) {
			l.cede()
			<-g.lead
			next := g.take()
			l.cede()
			l.land(&outcome{})
			if g.outcome != nil || len(g.lead) > 0 {
				t.Error("a lead that had ended did something")
			}
			next.cede()
		},
	} {
		g, l, _ := join(key, -1)
		if again, none, _ := join(key, -1); again != g || none != nil {
			t.Fatalf("%s: the second caller does not wait", name)
		}
		end(g, l)
		if n := underWay(locks); n != 0 {
			t.Errorf("%s: %d groups are left", name, n)
		}
	}
}

// However many callers a process has, one of them waits for the record of another process.
func TestDo_OneAsks(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	c.begin(bg, 0, Options{})
	for range 1999 {
		c.call(bg, 1, Options{})
	}
	c.gather(1999)
	if n := c.clients[1].Stats().Waiting; n != 1 {
		t.Errorf("%d callers wait for Redis, want 1", n)
	}
	c.finish(7, nil)
	for range 2000 {
		if a := c.answer(); a.err != nil || a.result != 7 {
			t.Errorf("%+v", a)
		}
	}
	if n := underWay(c.clients[0]) + underWay(c.clients[1]); n > 0 {
		t.Errorf("%d groups are left", n)
	}
}

// If the caller that asks Redis leaves, another one of its process asks.
func TestDo_LeaderLeaves(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	c.begin(bg, 0, Options{})
	first, leave := context.WithCancel(bg)
	c.call(first, 1, Options{})
	c.gather(1)
	c.call(bg, 1, Options{})
	c.gather(2)
	leave()
	if a := c.answer(); !errors.Is(a.err, context.Canceled) {
		t.Errorf("the leader: %+v", a)
	}
	c.gather(1)
	eventually(t, "another one asks", func() bool { return c.clients[1].Stats().Waiting == 1 })
	c.finish(5, nil)
	for range 2 {
		if a := c.answer(); a.err != nil || a.result != 5 {
			t.Errorf("%+v", a)
		}
	}
}

// A facade is a context that never ends itself, as that of a framework.
type facade struct {
	context.Context
	behind context.Context
}

func init() {
	ctxvalue.Register(func(ctx context.Context) context.Context {
		if f, ok := ctx.(facade); ok {
			return f.behind
		}
		return nil
	})
}

// The end of the context behind a framework's is the caller's own, too.
func TestDo_FrameworkContext(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	c.begin(bg, 0, Options{})
	for i := range 2 {
		behind, leave := context.WithCancel(bg)
		c.call(facade{bg, behind}, 1, Options{FailOpen: true})
		c.gather(1 + i)
		if i == 0 {
			c.call(bg, 1, Options{})
			c.gather(2)
		}
		leave()
		if a := c.answer(); !errors.Is(a.err, context.Canceled) {
			t.Errorf("caller %d: %+v", i, a)
		}
		eventually(t, "another one asks", func() bool { return c.clients[1].Stats().Waiting == 1 })
	}
	c.finish(5, nil)
	for range 2 {
		if a := c.answer(); a.err != nil || a.result != 5 {
			t.Errorf("%+v", a)
		}
	}
}

// The WaitTime of the caller that asks Redis is not that of those who wait for it, and the other way
// round.
func TestDo_OwnWaitTime(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 2)
	c.begin(bg, 0, Options{})
	c.call(bg, 1, Options{WaitTime: 2 * time.Second}) // so that it is seen to wait on a slow machine
	c.gather(1)
	c.call(bg, 1, Options{})
	c.call(bg, 1, Options{WaitTime: time.Millisecond})
	for range 2 {
		if a := c.answer(); !errors.Is(a.err, core.ErrNotAcquired) {
			t.Errorf("%+v", a)
		}
	}
	c.finish(5, nil)
	for range 2 {
		if a := c.answer(); a.err != nil || a.result != 5 {
			t.Errorf("%+v", a)
		}
	}
}

// When the lease of a run is lost, another caller of the process runs, even if the first run goes on.
// The others get the result of the second.
func TestDo_LostRunGoesOn(t *testing.T) {
	t.Parallel()
	c := newCrowd[int](t, 1)
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	lost := make(chan got, 1)
	go func() {
		result, shared, err := Do(bg, c.clients[0], "report", Options{LeaseTime: 500 * time.Millisecond}, func(context.Context) (int, error) {
			began <- struct{}{}
			<-goOn
			return 1, nil
		})
		lost <- got{result, shared, err}
	}()
	receive(t, "the run", began)
	for range 2 {
		c.call(bg, 0, Options{})
	}
	receive(t, "the next run", c.running)
	close(goOn)
	if a := receive(t, "the lost run", lost); a.result != 1 || a.shared || a.err != nil {
		t.Errorf("the lost run: %+v", a)
	}
	c.finish(2, nil)
	for range 2 {
		if a := c.answer(); a.result != 2 || a.err != nil {
			t.Errorf("%+v", a)
		}
	}
}

// A run may call Do with its own key: it does not wait for itself.
func TestDo_Nested(t *testing.T) {
	t.Parallel()
	locks := newLocks(t, redistest.Start(t))
	for name, ctx := range map[string]context.Context{"a context": bg, "an owner": core.WithOwner(bg)} {
		result, shared, err := Do(ctx, locks, name, Options{}, func(ctx context.Context) (int, error) {
			inner, shared, err := Do(ctx, locks, name, Options{WaitTime: 5 * time.Second}, func(context.Context) (int, error) { return 1, nil })
			if shared || err != nil {
				t.Errorf("%s: %v, %v", name, shared, err)
			}
			return inner + 1, nil
		})
		if result != 2 || shared || err != nil {
			t.Errorf("%s: %d, %v, %v", name, result, shared, err)
		}
	}
}

// newHeld returns locks on a server, and a rule that holds the first command for the report.
func newHeld(t *testing.T) (*redistest.Server, *core.Client, *redistest.Rule) {
	s := redistest.Start(t)
	proxy := s.Proxy(t)
	locks, err := core.New(proxy.Client(t), core.Options{CommandTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(bg, patience)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s, locks, proxy.OnMatch(1, func(args []string) bool { return len(args) > 3 && args[3] == "report" }, redistest.HoldRequest)
}

// If the caller that asks Redis leaves before it has a reply, another one asks, too.
func TestDo_LeaderLeavesEarly(t *testing.T) {
	t.Parallel()
	_, locks, asks := newHeld(t)
	answers := make(chan got, 2)
	call := func(ctx context.Context) {
		result, shared, err := Do(ctx, locks, "report", Options{}, func(context.Context) (int, error) { return 1, nil })
		answers <- got{result, shared, err}
	}
	ctx, leave := context.WithCancel(bg)
	go call(ctx)
	receive(t, "the command", asks.Hit())
	go call(bg)
	eventually(t, "a caller waits", func() bool { return waitingWith(locks) == 1 })
	leave()
	if a := receive(t, "the one that leaves", answers); !errors.Is(a.err, context.Canceled) {
		t.Errorf("the one that leaves: %+v", a)
	}
	asks.Release()
	if a := receive(t, "the other", answers); a.result != 1 || a.err != nil {
		t.Errorf("the other: %+v", a)
	}
}

// A fault of Redis is told to all who wait for the caller that has met it. With FailOpen each runs.
func TestDo_OutageForAll(t *testing.T) {
	t.Parallel()
	s, locks, asks := newHeld(t)
	answers := make(chan got, 20)
	call := func(opts Options) {
		result, shared, err := Do(bg, locks, "report", opts, func(context.Context) (int, error) { return 1, nil })
		answers <- got{result, shared, err}
	}
	go call(Options{})
	receive(t, "the command", asks.Hit())
	for i := range 10 {
		go call(Options{FailOpen: i%2 == 0})
	}
	eventually(t, "10 callers wait", func() bool { return waitingWith(locks) == 10 })
	s.Kill(t)
	asks.Release()
	ran := 0
	for range 11 {
		a := receive(t, "an answer", answers)
		if a.shared || (a.err == nil) != (a.result == 1) {
			t.Errorf("%+v", a)
		}
		ran += a.result
	}
	if ran != 5 {
		t.Errorf("%d callers ran, want the 5 with FailOpen", ran)
	}
}

// Callers of a process share a result only if no copy of it can be changed.
func TestImmutable(t *testing.T) {
	t.Parallel()
	type flat struct {
		Name  string
		Parts [2]struct{ Sold float64 }
	}
	for _, test := range []struct {
		of   any
		want bool
	}{
		{1, true}, {"", true}, {true, true}, {flat{}, true}, {2i, true},
		{new(int), false}, {[]byte{}, false}, {map[string]int{}, false}, {struct{ P *int }{}, false}, {[1][]int{}, false},
		{[1]any{}, false}, {func() {}, false}, {make(chan int), false},
	} {
		if got := immutable(reflect.TypeOf(test.of)); got != test.want {
			t.Errorf("%T: %v, want %v", test.of, got, test.want)
		}
	}
}

// An outcome is decoded once for callers that may share it, and for each type.
func TestRead_Once(t *testing.T) {
	t.Parallel()
	codec := &countingCodec{}
	o := &outcome{record: []byte(`R7`)}
	for range 3 {
		if n, err := read[int](codec, o); n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if f, err := read[float64](codec, o); f != 7 || err != nil || codec.decoded != 2 {
		t.Errorf("%v, %v, decoded %d times, want 2", f, err, codec.decoded)
	}
	for range 2 {
		if _, err := read[[]int](codec, &outcome{record: []byte(`R[1]`)}); err != nil {
			t.Error(err)
		}
	}
	if codec.decoded != 4 {
		t.Errorf("decoded %d times, want 4", codec.decoded)
	}
}

type countingCodec struct {
	jsonCodec
	decoded int
}

func (c *countingCodec) Unmarshal(data []byte, result any) error {
	c.decoded++
	return c.jsonCodec.Unmarshal(data, result)
}
