package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A server stands in for Redis without a network and on a fake clock. It records what is sent and
// answers when a test says so.
type server struct {
	mu sync.Mutex
	// flights have no answer yet.
	flights []*sending
	// sent counts commands.
	sent int
}

// A sending is one command or pipeline in flight.
type sending struct {
	ctx  context.Context
	cmds []redis.Cmder
	// inline is true if a caller of Do sends it on its own goroutine.
	inline bool
	done   chan error
}

func (s *server) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *server) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return s.exchange(ctx, []redis.Cmder{cmd}) }
}

func (s *server) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return s.exchange(ctx, slices.Clone(cmds)) }
}

func (s *server) exchange(ctx context.Context, cmds []redis.Cmder) error {
	f := &sending{ctx, cmds, onStack("(*Batcher).Do"), make(chan error)}
	s.mu.Lock()
	s.flights = append(s.flights, f)
	s.sent += len(cmds)
	s.mu.Unlock()
	return <-f.done
}

// onStack reports whether a function of that name is running on this goroutine.
func onStack(name string) bool {
	stack := make([]byte, 1<<16)
	return strings.Contains(string(stack[:runtime.Stack(stack, false)]), name+"(")
}

// sizes returns the number of commands of each flight, oldest first.
func (s *server) sizes() []int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var sizes []int
	for _, f := range s.flights {
		sizes = append(sizes, len(f.cmds))
	}
	return sizes
}

// answer answers the oldest flight: each command with its key, or all with a connection error.
func (s *server) answer(err error) {
	synctest.Wait()
	s.mu.Lock()
	f := s.flights[0]
	s.flights = s.flights[1:]
	s.mu.Unlock()
	for _, cmd := range f.cmds {
		if err == nil {
			cmd.(onceCmd).SetVal(cmd.Args()[3])
		} else {
			cmd.SetErr(err)
		}
	}
	f.done <- err
	synctest.Wait()
}

// answerOne answers the oldest flight, if there is one.
func (s *server) answerOne() {
	s.mu.Lock()
	some := len(s.flights) > 0
	s.mu.Unlock()
	if some {
		s.answer(nil)
	}
}

func (s *server) answerAll() {
	for len(s.sizes()) > 0 {
		s.answer(nil)
	}
}

// A bench is a batcher in front of a server.
type bench struct {
	*Batcher
	*server
	t *testing.T
}

const timeout = time.Minute

// one returns the client of a single server, as core passes it.
func one(rdb *redis.Client) redisclient.Client { return redisclient.Client{UniversalClient: rdb} }

// onClock runs a test on a fake clock. Afterwards it answers everything and waits for all
// goroutines.
func onClock(t *testing.T, test func(b *bench)) {
	t.Helper()
	onClockWith(t, Config{}, test)
}

// onClockWith is onClock with a given Config, of which it sets the client and the timeout.
func onClockWith(t *testing.T, cfg Config, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		b := &bench{server: new(server), t: t}
		rdb.AddHook(b.server)
		cfg.Redis, cfg.Timeout = one(rdb), timeout
		b.Batcher = New(cfg)
		test(b)
		b.answerAll()
		b.Close()
		_ = rdb.Close()
	})
}

// calls sends n calls. The server answers each with its key.
func (b *bench) calls(n int) []*Call {
	calls := make([]*Call, n)
	for i := range calls {
		calls[i] = newCall(fmt.Sprint("key ", i))
		b.Send(calls[i], time.Now())
	}
	return calls
}

// pass advances the clock and lets everything due by then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newCall(key string) *Call {
	return &Call{Call: lua.Inspect(key, ""), Deadline: time.Now().Add(timeout), Reply: make(chan Reply, 1)}
}

// wantSizes fails the test unless these are the sizes of the flights.
func (b *bench) wantSizes(what string, want ...int) {
	b.t.Helper()
	if got := b.sizes(); !slices.Equal(got, want) {
		b.t.Fatalf("%s: in flight: %v, want %v", what, got, want)
	}
}

// wantReplies fails the test unless each call got its key as its one reply.
func (b *bench) wantReplies(calls []*Call) {
	b.t.Helper()
	synctest.Wait()
	for _, c := range calls {
		select {
		case r := <-c.Reply:
			if r.Err != nil || r.Value != c.Key() {
				b.t.Fatalf("%s: reply %v, %v", c.Key(), r.Value, r.Err)
			}
		default:
			b.t.Fatalf("%s: no reply", c.Key())
		}
	}
}

func wantErr(t *testing.T, c *Call, want error) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-c.Reply:
		if !errors.Is(r.Err, want) {
			t.Fatalf("%s: reply %v, %v; want %v", c.Key(), r.Value, r.Err, want)
		}
	default:
		t.Fatalf("%s: no reply, want %v", c.Key(), want)
	}
}

// A lone call never waits for others, and the first few do not wait for each other.
func TestLane_LoneCallerNeverWaits(t *testing.T) {
	onClock(t, func(b *bench) {
		began := time.Now()
		for range 100 {
			calls := b.calls(1)
			b.wantSizes("a lone call", 1)
			b.answer(nil)
			b.wantReplies(calls)
		}
		few := b.calls(4)
		b.wantSizes("a few", 1, 1, 1, 1)
		if took := time.Since(began); took != 0 {
			t.Errorf("calls waited %v, want 0", took)
		}
		b.answerAll()
		b.wantReplies(few)
	})
}

// Beyond the first few, queued calls leave as one pipeline, and two pipelines may be in flight.
func TestLane_TwoPipelines(t *testing.T) {
	onClock(t, func(b *bench) {
		calls := b.calls(100)
		b.wantSizes("the first few", 1, 1, 1, 1)
		b.answer(nil)
		b.answer(nil)
		b.wantSizes("with two in flight", 1, 1)
		b.answer(nil)
		b.wantSizes("with room for a pipeline", 1, 96)
		calls = append(calls, b.calls(10)...)
		b.answer(nil)
		b.wantSizes("two pipelines", 96, 10)
		calls = append(calls, b.calls(20)...)
		b.wantSizes("with two pipelines in flight", 96, 10)
		b.answer(nil)
		b.wantSizes("after the first", 10, 20)
		b.answerAll()
		b.wantReplies(calls)
	})
}

// dos starts n callers of Do and returns the channel of their replies.
// stay sends a call and waits for its reply, however long that takes.
func (b *Batcher) stay(c *Call) Reply {
	r, _ := b.Do(c, time.Now(), Until{})
	return r
}

func (b *bench) dos(n int) (answers chan Reply) {
	answers = make(chan Reply, n)
	for i := range n {
		go func() { answers <- b.stay(newCall(fmt.Sprint("staying ", i))) }()
		synctest.Wait()
	}
	return answers
}

// wantInline fails the test unless these flights run on their callers' goroutines.
func (b *bench) wantInline(what string, want ...bool) {
	b.t.Helper()
	synctest.Wait()
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	var got []bool
	for _, f := range b.flights {
		got = append(got, f.inline)
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("%s: flights on their callers' goroutines: %v, want %v", what, got, want)
	}
}

// Do sends a call on the caller's goroutine if it may start at once. It never sends calls of
// others.
func TestDo(t *testing.T) {
	onClock(t, func(b *bench) {
		alone := b.dos(1)
		b.wantInline("a lone caller", true)
		b.answer(nil)
		if r := <-alone; r.Err != nil || r.Value != "staying 0" {
			t.Fatalf("the lone caller got %v, %v", r.Value, r.Err)
		}

		many := b.dos(10)
		b.wantInline("the first few", true, true, true, true)
		for range 3 {
			b.answer(nil)
		}
		b.wantSizes("the last of the first few, and all others", 1, 6)
		b.wantInline("they are not its business", true, false)
		b.answer(nil)
		for range 4 {
			<-many
		}
		b.answerAll()
		for range 6 {
			if r := <-many; r.Err != nil {
				t.Error(r.Err)
			}
		}
	})
}

// Do returns by the deadline with ErrUnanswered.
func TestDo_Deadline(t *testing.T) {
	onClock(t, func(b *bench) {
		late := b.dos(1)
		pass(timeout)
		b.answer(nil)
		if r := <-late; r.Err != ErrUnanswered {
			t.Errorf("a reply after the deadline: %v, %v; want %v", r.Value, r.Err, ErrUnanswered)
		}
	})
}

// A slow pipeline does not block others, up to a limit.
func TestLane_SlowPipelineDoesNotCount(t *testing.T) {
	onClock(t, func(b *bench) {
		var calls []*Call
		more := func(n int) { calls = append(calls, b.calls(n)...) }
		more(5)
		want := []int{1, 1, 1, 1}
		b.wantSizes("the first few", want...)
		pass(leastSlow - time.Nanosecond)
		b.wantSizes("before they are old", want...)
		pass(time.Nanosecond)
		want = append(want, 1)
		b.wantSizes("when they are old", want...)
		more(3)
		b.wantSizes("they go alone again", 1, 1, 1, 1, 1, 1, 1, 1)
		more(10)
		pass(timeout / 2)
		b.wantSizes("no more than that, whatever happens", 1, 1, 1, 1, 1, 1, 1, 1)
		b.answer(nil)
		b.wantSizes("one in its place", 1, 1, 1, 1, 1, 1, 1, 10)
		b.answerAll()
		b.wantReplies(calls)
	})
}

// An abandoned flight does not block others, even though it ends only later.
func TestLane_AbandonedFlightDoesNotCount(t *testing.T) {
	onClock(t, func(b *bench) {
		for range pooled.most {
			b.calls(1)
			pass(leastSlow)
		}
		queued := b.calls(1)
		b.wantSizes("all that there may be", 1, 1, 1, 1, 1, 1, 1, 1)
		pass(timeout - time.Duration(pooled.most)*leastSlow)
		b.wantSizes("the first has been given up", 1, 1, 1, 1, 1, 1, 1, 1, 1)
		pass(time.Duration(pooled.most-1) * leastSlow)
		queued = append(queued, b.calls(pooled.few)...)
		b.wantSizes("all that were before it have been", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
		b.answerAll()
		b.wantReplies(queued)
	})
}

// What counts as slow depends on the usual duration.
func TestLane_SlowDependsOnUsual(t *testing.T) {
	onClock(t, func(b *bench) {
		const usual = 100 * time.Millisecond
		for range 100 {
			b.calls(1)
			pass(usual)
			b.answer(nil)
		}
		b.calls(5)
		b.wantSizes("the first few", 1, 1, 1, 1)
		pass(9 * usual)
		b.wantSizes("before they are old", 1, 1, 1, 1)
		pass(2 * usual)
		b.wantSizes("when they are old", 1, 1, 1, 1, 1)
	})
}

// A pipeline is bounded in commands and bytes. A call too large for any pipeline goes alone.
func TestLane_Bounds(t *testing.T) {
	onClock(t, func(b *bench) {
		calls := b.calls(4 + 250)
		for range 3 {
			b.answer(nil)
		}
		b.wantSizes("bounded in commands", 1, 128)
		b.answer(nil)
		b.wantSizes("the rest", 128, 122)

		large := strings.Repeat("x", pooled.bytes/4)
		for i := range 10 {
			calls = append(calls, newCall(fmt.Sprint(large, i)))
			b.Send(calls[len(calls)-1], time.Now())
		}
		b.answer(nil)
		b.wantSizes("bounded in bytes", 122, 3)
		huge := newCall(strings.Repeat("x", 2*pooled.bytes))
		calls = append(calls, huge)
		b.Send(huge, time.Now())
		for range 4 {
			b.answer(nil)
		}
		b.wantSizes("too large for any", 1, 1)
		b.answerAll()
		b.wantReplies(calls)
	})
}

// A call is answered once, by its deadline: ErrUnsent if it is still queued, ErrUnanswered
// otherwise.
func TestDeadlines(t *testing.T) {
	onClock(t, func(b *bench) {
		sent := b.calls(40)
		pass(leastSlow)
		b.wantSizes("a pipeline", 1, 1, 1, 1, 36)
		pass(leastSlow)
		sent = append(sent, b.calls(3)...)
		b.wantSizes("all that there may be", 1, 1, 1, 1, 36, 1, 1, 1)
		var queued []*Call
		for i := range 10 {
			queued = append(queued, newCall(fmt.Sprint("queued ", i)))
			queued[i].Deadline = queued[i].Deadline.Add(-2 * leastSlow) // together with the first
			b.Send(queued[i], time.Now())
		}
		pass(timeout - 2*leastSlow - time.Nanosecond)
		if len(sent[0].Reply) > 0 {
			t.Fatal("answered before the deadline")
		}
		pass(time.Nanosecond)
		for _, c := range sent[:40] {
			wantErr(t, c, ErrUnanswered)
		}
		for _, c := range queued {
			wantErr(t, c, ErrUnsent)
		}
		pass(2 * leastSlow)
		for _, c := range sent[40:] {
			wantErr(t, c, ErrUnanswered)
		}
		b.answerAll()
		for _, c := range append(sent, queued...) {
			if len(c.Reply) > 0 {
				t.Fatal("a call got two replies")
			}
		}
		after := b.calls(1)
		b.answerAll()
		b.wantReplies(after)
	})
}

// A shorter deadline behind longer ones is kept, in the queue and in a pipeline.
func TestDeadlines_AnyOrder(t *testing.T) {
	onClock(t, func(b *bench) {
		calls := b.calls(4)
		var short []*Call
		for i := range 8 {
			c := newCall(fmt.Sprint("short ", i))
			c.Deadline = time.Now().Add(time.Duration(8-i) * time.Millisecond)
			short = append(short, c)
			b.Send(c, time.Now())
		}
		for i := range short {
			pass(time.Millisecond)
			wantErr(t, short[7-i], ErrUnsent)
		}
		for i, c := range short {
			c.Deadline = time.Now().Add(time.Duration(8-i) * time.Second)
			b.Send(c, time.Now())
		}
		pass(leastSlow)
		b.wantSizes("a pipeline of them", 1, 1, 1, 1, 8)
		pass(time.Second - leastSlow)
		for i := range short {
			wantErr(t, short[7-i], ErrUnanswered)
			pass(time.Second)
		}
		b.answerAll()
		b.wantReplies(calls)
	})
}

// A reply that has arrived is delivered, even if the deadline passes while earlier replies are
// delivered.
func TestDeadlines_DuringDelivery(t *testing.T) {
	onClock(t, func(b *bench) {
		first := b.calls(4)
		slow := newCall("slow")
		slow.Reply <- Reply{} // blocks the runner that delivers to it
		b.Send(slow, time.Now())
		var calls []*Call
		short := func(name string) *Call {
			c := newCall(name)
			c.Deadline = time.Now().Add(time.Second)
			b.Send(c, time.Now())
			return c
		}
		for i := range 3 {
			calls = append(calls, short(fmt.Sprint("behind it ", i)))
		}
		for range first {
			b.answer(nil)
		}
		b.wantSizes("a pipeline", 4)
		b.answer(nil)
		other := short("not answered")
		pass(time.Second)
		wantErr(t, other, ErrUnanswered)
		<-slow.Reply
		b.wantReplies(append(calls, slow))
	})
}

// The context of a command outlives the deadlines of its calls and the command, whatever was sent
// before and after it. Close leaves no context behind.
func TestContexts(t *testing.T) {
	onClock(t, func(b *bench) {
		var last context.Context
		for range 3 {
			calls := b.calls(1)
			b.answer(nil)
			pass(timeout / 8)
			calls = append(calls, b.calls(1)...)
			pass(timeout / 2)
			calls = append(calls, b.calls(1)...)
			pass(timeout/2 - time.Nanosecond)
			for i, f := range b.flights {
				if err := f.ctx.Err(); err != nil {
					t.Errorf("before the deadline, flight %d: %v", i, err)
				}
				last = f.ctx
			}
			b.answerAll()
			b.wantReplies(calls)
		}
		b.Close()
		if last.Err() == nil {
			t.Error("Close left a context behind")
		}
	})
}

// Withdraw takes back a queued call. A call in flight is answered all the same.
func TestWithdraw(t *testing.T) {
	onClock(t, func(b *bench) {
		calls := b.calls(10)
		for i, want := range map[int]bool{0: false, 3: false, 4: true, 6: true, 9: true} {
			if b.Withdraw(calls[i]) != want {
				t.Fatalf("call %d: Withdraw = %v, want %v", i, !want, want)
			}
		}
		sent := append(slices.Clone(calls[:4]), calls[5], calls[7], calls[8])
		pass(leastSlow)
		b.wantSizes("what was not withdrawn", 1, 1, 1, 1, 3)
		b.answerAll()
		b.wantReplies(sent)
		for _, c := range []*Call{calls[4], calls[6], calls[9]} {
			if len(c.Reply) > 0 {
				t.Errorf("%s was withdrawn but answered", c.Key())
			}
		}
		if b.sent != len(sent) {
			t.Errorf("%d commands were sent, want %d", b.sent, len(sent))
		}
		if b.Withdraw(calls[0]) || b.Withdraw(newCall("never sent")) {
			t.Error("Withdraw took back a finished call")
		}
	})
}

// Renewals do not queue behind other calls.
func TestLane_RenewalsDoNotQueue(t *testing.T) {
	onClock(t, func(b *bench) {
		calls := b.calls(1)
		for len(b.sizes()) < pooled.most {
			pass(leastSlow)
			calls = append(calls, b.calls(1)...)
		}
		calls = append(calls, b.calls(100)...)
		for range 3 {
			before := len(b.sizes())
			renewal := newCall("renewal")
			renewal.Purpose = Renewals
			b.Send(renewal, time.Now())
			if n := len(b.sizes()); n != before+1 {
				t.Fatalf("%d flights, want %d: the renewal waits", n, before+1)
			}
			calls = append(calls, renewal)
		}
		b.answerAll()
		b.wantReplies(calls)
	})
}

// An error reply reaches its own caller only. A connection error reaches every caller on it.
func TestErrors_ReachTheirCallers(t *testing.T) {
	onClock(t, func(b *bench) {
		calls := b.calls(4 + 3)
		for range 3 {
			b.answer(nil)
		}
		b.wantSizes("a pipeline of three", 1, 3)
		b.answer(nil)
		b.wantReplies(calls[:4])
		synctest.Wait()
		pipeline := b.flights[0]
		b.flights = nil
		own := errors.New("its own")
		pipeline.cmds[0].(onceCmd).SetVal(calls[4].Key())
		pipeline.cmds[1].SetErr(own)
		pipeline.cmds[2].(onceCmd).SetVal(calls[6].Key())
		pipeline.done <- own
		b.wantReplies([]*Call{calls[4], calls[6]})
		wantErr(t, calls[5], own)

		dead := errors.New("broken pipe")
		calls = b.calls(4 + 3)
		for range 7 {
			if len(b.sizes()) == 0 {
				break
			}
			b.answer(dead)
		}
		for _, c := range calls {
			wantErr(t, c, dead)
		}

		// A server refuses a connection with an error reply: go-redis returns it for the pipeline
		// only.
		calls = b.calls(4 + 3)
		for range 3 {
			b.answer(nil)
		}
		b.answer(nil)
		b.wantReplies(calls[:4])
		refused := errors.New("ERR max number of clients reached")
		synctest.Wait()
		b.flights[0].done <- refused
		b.flights = nil
		for _, c := range calls[4:] {
			wantErr(t, c, refused)
		}
	})
}

// A WAIT confirms only the calls of its exchange. It does not confirm an earlier exchange with
// calls that had to be sent again.
func TestAcks_WhatAWaitConfirms(t *testing.T) {
	onClockWith(t, Config{Acks: 2, AckTimeout: time.Second}, func(b *bench) {
		unknown := ""
		answer := func(acks any) {
			synctest.Wait()
			cmds := b.flights[0].cmds
			if last := cmds[len(cmds)-1].Args(); last[0] != "WAIT" || last[1] != 2 {
				t.Fatalf("the last command is %v", last)
			}
			b.answerEach(func(cmd redis.Cmder) (any, error) {
				err, failed := acks.(error)
				switch {
				case cmd.Args()[0] == "WAIT" && failed:
					return nil, err
				case cmd.Args()[0] == "WAIT":
					return acks, nil
				case cmd.Args()[0] == "EVALSHA" && cmd.Args()[3] == unknown:
					return nil, redisError("NOSCRIPT No matching script.")
				}
				return byKey(cmd)
			})
		}
		send := func(name string, purpose Purpose) *Call {
			c := newCall(name)
			c.Purpose = purpose
			b.Send(c, time.Now())
			return c
		}
		want := func(c *Call, confirmed bool) {
			t.Helper()
			if r := <-c.Reply; r.Err != nil || r.Value != c.Key() || (r.Unacked == nil) != confirmed {
				t.Errorf("%s: reply %v, %v, unacked: %v", c.Key(), r.Value, r.Err, r.Unacked)
			}
		}

		for _, purpose := range []Purpose{Replicated, Renewals} {
			for _, acks := range []any{int64(3), int64(2), int64(1), redisError("ERR unknown command")} {
				c := send("alone", purpose)
				answer(acks)
				want(c, acks == int64(3) || acks == int64(2))
			}
		}

		var calls []*Call
		for i := range 4 + 3 {
			calls = append(calls, send(fmt.Sprint("key ", i), Replicated))
		}
		for range 4 {
			answer(int64(2))
		}
		b.wantSizes("a pipeline", 3+1)
		unknown = "key 4"
		answer(int64(1))
		b.wantSizes("the one that was not executed", 1+1)
		answer(int64(2))
		for i, c := range calls {
			want(c, i < 5)
		}
	})
}

// Many callers come, go and leave at random. Each is answered once or has withdrawn.
func TestBatcher_RandomCallers(t *testing.T) {
	// The race detector of Go 1.26 crashes if two threads run timers of one bubble.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	onClock(t, func(b *bench) {
		stop := make(chan struct{})
		var answers sync.WaitGroup
		answers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				b.answerOne()
			}
		})
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				for round := range 20 {
					c := newCall(fmt.Sprint(i, " ", round))
					if i%3 == 0 {
						if r := b.stay(c); r.Value != c.Key() {
							t.Errorf("%s: reply %v, %v", c.Key(), r.Value, r.Err)
						}
						continue
					}
					b.Send(c, time.Now())
					select {
					case r := <-c.Reply:
						if r.Value != c.Key() {
							t.Errorf("%s: reply %v, %v", c.Key(), r.Value, r.Err)
						}
					case <-time.After(time.Duration(i%7) * time.Millisecond):
						if !b.Withdraw(c) {
							<-c.Reply
						}
					}
				}
			})
		}
		wg.Wait()
		close(stop)
		answers.Wait()
	})
}
