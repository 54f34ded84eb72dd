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
	f := &sending{ctx, cmds, isOnStack("(*Batcher).Do"), make(chan error)}
	s.mu.Lock()
	s.flights = append(s.flights, f)
	s.sent += len(cmds)
	s.mu.Unlock()
	return <-f.done
}

// isOnStack reports whether a function of that name is running on this goroutine.
func isOnStack(name string) bool {
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

// A batchFixture is a batcher in front of a server.
type batchFixture struct {
	*Batcher
	*server
	t *testing.T
}

const timeout = time.Minute

// one returns the client of a single server, as core passes it.
func one(rdb *redis.Client) redisclient.Client { return redisclient.Client{UniversalClient: rdb} }

// withFakeClock runs a test on a fake clock. Afterwards it answers everything and waits for all
// goroutines.
func withFakeClock(t *testing.T, test func(fx *batchFixture)) {
	t.Helper()
	withFakeClockAnd(t, Config{}, test)
}

// withFakeClockAnd is withFakeClock with a given Config, of which it sets the client and the
// timeout.
func withFakeClockAnd(t *testing.T, cfg Config, test func(fx *batchFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		fx := &batchFixture{server: new(server), t: t}
		rdb.AddHook(fx.server)
		cfg.Redis, cfg.Timeout = one(rdb), timeout
		fx.Batcher = New(cfg)
		test(fx)
		fx.answerAll()
		fx.Close()
		_ = rdb.Close()
	})
}

// calls sends n calls. The server answers each with its key.
func (fx *batchFixture) calls(n int) []*Call {
	calls := make([]*Call, n)
	for i := range calls {
		calls[i] = newCall(fmt.Sprint("key ", i))
		fx.Send(calls[i], time.Now())
	}
	return calls
}

// sleep advances the clock and lets everything due by then happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newCall(key string) *Call {
	return &Call{Call: lua.Inspect(key, ""), Deadline: time.Now().Add(timeout), Reply: make(chan Reply, 1)}
}

// wantSizes fails the test unless these are the sizes of the flights.
func (fx *batchFixture) wantSizes(what string, want ...int) {
	fx.t.Helper()
	if got := fx.sizes(); !slices.Equal(got, want) {
		fx.t.Fatalf("%s: in flight: %v, want %v", what, got, want)
	}
}

// wantReplies fails the test unless each call got its key as its one reply.
func (fx *batchFixture) wantReplies(calls []*Call) {
	fx.t.Helper()
	synctest.Wait()
	for _, c := range calls {
		select {
		case r := <-c.Reply:
			if r.Err != nil || r.Value != c.Key() {
				fx.t.Fatalf("%s: reply %v, %v", c.Key(), r.Value, r.Err)
			}
		default:
			fx.t.Fatalf("%s: no reply", c.Key())
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
	withFakeClock(t, func(fx *batchFixture) {
		began := time.Now()
		for range 100 {
			calls := fx.calls(1)
			fx.wantSizes("a lone call", 1)
			fx.answer(nil)
			fx.wantReplies(calls)
		}
		few := fx.calls(4)
		fx.wantSizes("a few", 1, 1, 1, 1)
		if took := time.Since(began); took != 0 {
			t.Errorf("calls waited %v, want 0", took)
		}
		fx.answerAll()
		fx.wantReplies(few)
	})
}

// Beyond the first few, queued calls leave as one pipeline, and two pipelines may be in flight.
func TestLane_TwoPipelines(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.calls(100)
		fx.wantSizes("the first few", 1, 1, 1, 1)
		fx.answer(nil)
		fx.answer(nil)
		fx.wantSizes("with two in flight", 1, 1)
		fx.answer(nil)
		fx.wantSizes("with room for a pipeline", 1, 96)
		calls = append(calls, fx.calls(10)...)
		fx.answer(nil)
		fx.wantSizes("two pipelines", 96, 10)
		calls = append(calls, fx.calls(20)...)
		fx.wantSizes("with two pipelines in flight", 96, 10)
		fx.answer(nil)
		fx.wantSizes("after the first", 10, 20)
		fx.answerAll()
		fx.wantReplies(calls)
	})
}

// dos starts n callers of Do and returns the channel of their replies.
// stay sends a call and waits for its reply, however long that takes.
func (b *Batcher) stay(c *Call) Reply {
	r, _ := b.Do(c, time.Now(), Until{})
	return r
}

func (fx *batchFixture) dos(n int) (answers chan Reply) {
	answers = make(chan Reply, n)
	for i := range n {
		go func() { answers <- fx.stay(newCall(fmt.Sprint("staying ", i))) }()
		synctest.Wait()
	}
	return answers
}

// wantInline fails the test unless these flights run on their callers' goroutines.
func (fx *batchFixture) wantInline(what string, want ...bool) {
	fx.t.Helper()
	synctest.Wait()
	fx.server.mu.Lock()
	defer fx.server.mu.Unlock()
	var got []bool
	for _, f := range fx.flights {
		got = append(got, f.inline)
	}
	if !slices.Equal(got, want) {
		fx.t.Fatalf("%s: flights on their callers' goroutines: %v, want %v", what, got, want)
	}
}

// Do sends a call on the caller's goroutine if it may start at once. It never sends calls of
// others.
func TestDo(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		alone := fx.dos(1)
		fx.wantInline("a lone caller", true)
		fx.answer(nil)
		if r := <-alone; r.Err != nil || r.Value != "staying 0" {
			t.Fatalf("the lone caller got %v, %v", r.Value, r.Err)
		}

		many := fx.dos(10)
		fx.wantInline("the first few", true, true, true, true)
		for range 3 {
			fx.answer(nil)
		}
		fx.wantSizes("the last of the first few, and all others", 1, 6)
		fx.wantInline("they are not its business", true, false)
		fx.answer(nil)
		for range 4 {
			<-many
		}
		fx.answerAll()
		for range 6 {
			if r := <-many; r.Err != nil {
				t.Error(r.Err)
			}
		}
	})
}

// Do returns by the deadline with ErrUnanswered.
func TestDo_Deadline(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		late := fx.dos(1)
		sleep(timeout)
		fx.answer(nil)
		if r := <-late; r.Err != ErrUnanswered {
			t.Errorf("a reply after the deadline: %v, %v; want %v", r.Value, r.Err, ErrUnanswered)
		}
	})
}

// A slow pipeline does not block others, up to a limit.
func TestLane_SlowPipelineDoesNotCount(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		var calls []*Call
		more := func(n int) { calls = append(calls, fx.calls(n)...) }
		more(5)
		want := []int{1, 1, 1, 1}
		fx.wantSizes("the first few", want...)
		sleep(leastSlow - time.Nanosecond)
		fx.wantSizes("before they are old", want...)
		sleep(time.Nanosecond)
		want = append(want, 1)
		fx.wantSizes("when they are old", want...)
		more(3)
		fx.wantSizes("they go alone again", 1, 1, 1, 1, 1, 1, 1, 1)
		more(10)
		sleep(timeout / 2)
		fx.wantSizes("no more than that, whatever happens", 1, 1, 1, 1, 1, 1, 1, 1)
		fx.answer(nil)
		fx.wantSizes("one in its place", 1, 1, 1, 1, 1, 1, 1, 10)
		fx.answerAll()
		fx.wantReplies(calls)
	})
}

// An abandoned flight does not block others, even though it ends only later.
func TestLane_AbandonedFlightDoesNotCount(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		for range pooled.most {
			fx.calls(1)
			sleep(leastSlow)
		}
		queued := fx.calls(1)
		fx.wantSizes("all that there may be", 1, 1, 1, 1, 1, 1, 1, 1)
		sleep(timeout - time.Duration(pooled.most)*leastSlow)
		fx.wantSizes("the first has been given up", 1, 1, 1, 1, 1, 1, 1, 1, 1)
		sleep(time.Duration(pooled.most-1) * leastSlow)
		queued = append(queued, fx.calls(pooled.few)...)
		fx.wantSizes("all that were before it have been", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
		fx.answerAll()
		fx.wantReplies(queued)
	})
}

// What counts as slow depends on the usual duration.
func TestLane_SlowDependsOnUsual(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		const usual = 100 * time.Millisecond
		for range 100 {
			fx.calls(1)
			sleep(usual)
			fx.answer(nil)
		}
		fx.calls(5)
		fx.wantSizes("the first few", 1, 1, 1, 1)
		sleep(9 * usual)
		fx.wantSizes("before they are old", 1, 1, 1, 1)
		sleep(2 * usual)
		fx.wantSizes("when they are old", 1, 1, 1, 1, 1)
	})
}

// A pipeline is bounded in commands and bytes. A call too large for any pipeline goes alone.
func TestLane_Bounds(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.calls(4 + 250)
		for range 3 {
			fx.answer(nil)
		}
		fx.wantSizes("bounded in commands", 1, 128)
		fx.answer(nil)
		fx.wantSizes("the rest", 128, 122)

		large := strings.Repeat("x", pooled.bytes/4)
		for i := range 10 {
			calls = append(calls, newCall(fmt.Sprint(large, i)))
			fx.Send(calls[len(calls)-1], time.Now())
		}
		fx.answer(nil)
		fx.wantSizes("bounded in bytes", 122, 3)
		huge := newCall(strings.Repeat("x", 2*pooled.bytes))
		calls = append(calls, huge)
		fx.Send(huge, time.Now())
		for range 4 {
			fx.answer(nil)
		}
		fx.wantSizes("too large for any", 1, 1)
		fx.answerAll()
		fx.wantReplies(calls)
	})
}

// A call is answered once, by its deadline: ErrUnsent if it is still queued, ErrUnanswered
// otherwise.
func TestDeadlines(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		sent := fx.calls(40)
		sleep(leastSlow)
		fx.wantSizes("a pipeline", 1, 1, 1, 1, 36)
		sleep(leastSlow)
		sent = append(sent, fx.calls(3)...)
		fx.wantSizes("all that there may be", 1, 1, 1, 1, 36, 1, 1, 1)
		var queued []*Call
		for i := range 10 {
			queued = append(queued, newCall(fmt.Sprint("queued ", i)))
			queued[i].Deadline = queued[i].Deadline.Add(-2 * leastSlow) // together with the first
			fx.Send(queued[i], time.Now())
		}
		sleep(timeout - 2*leastSlow - time.Nanosecond)
		if len(sent[0].Reply) > 0 {
			t.Fatal("answered before the deadline")
		}
		sleep(time.Nanosecond)
		for _, c := range sent[:40] {
			wantErr(t, c, ErrUnanswered)
		}
		for _, c := range queued {
			wantErr(t, c, ErrUnsent)
		}
		sleep(2 * leastSlow)
		for _, c := range sent[40:] {
			wantErr(t, c, ErrUnanswered)
		}
		fx.answerAll()
		for _, c := range append(sent, queued...) {
			if len(c.Reply) > 0 {
				t.Fatal("a call got two replies")
			}
		}
		after := fx.calls(1)
		fx.answerAll()
		fx.wantReplies(after)
	})
}

// A shorter deadline behind longer ones is kept, in the queue and in a pipeline.
func TestDeadlines_AnyOrder(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.calls(4)
		var short []*Call
		for i := range 8 {
			c := newCall(fmt.Sprint("short ", i))
			c.Deadline = time.Now().Add(time.Duration(8-i) * time.Millisecond)
			short = append(short, c)
			fx.Send(c, time.Now())
		}
		for i := range short {
			sleep(time.Millisecond)
			wantErr(t, short[7-i], ErrUnsent)
		}
		for i, c := range short {
			c.Deadline = time.Now().Add(time.Duration(8-i) * time.Second)
			fx.Send(c, time.Now())
		}
		sleep(leastSlow)
		fx.wantSizes("a pipeline of them", 1, 1, 1, 1, 8)
		sleep(time.Second - leastSlow)
		for i := range short {
			wantErr(t, short[7-i], ErrUnanswered)
			sleep(time.Second)
		}
		fx.answerAll()
		fx.wantReplies(calls)
	})
}

// A reply that has arrived is delivered, even if the deadline passes while earlier replies are
// delivered.
func TestDeadlines_DuringDelivery(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		first := fx.calls(4)
		slow := newCall("slow")
		slow.Reply <- Reply{} // blocks the runner that delivers to it
		fx.Send(slow, time.Now())
		var calls []*Call
		short := func(name string) *Call {
			c := newCall(name)
			c.Deadline = time.Now().Add(time.Second)
			fx.Send(c, time.Now())
			return c
		}
		for i := range 3 {
			calls = append(calls, short(fmt.Sprint("behind it ", i)))
		}
		for range first {
			fx.answer(nil)
		}
		fx.wantSizes("a pipeline", 4)
		fx.answer(nil)
		other := short("not answered")
		sleep(time.Second)
		wantErr(t, other, ErrUnanswered)
		<-slow.Reply
		fx.wantReplies(append(calls, slow))
	})
}

// The context of a command outlives the deadlines of its calls and the command, whatever was sent
// before and after it. Close leaves no context behind.
func TestContexts(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		var last context.Context
		for range 3 {
			calls := fx.calls(1)
			fx.answer(nil)
			sleep(timeout / 8)
			calls = append(calls, fx.calls(1)...)
			sleep(timeout / 2)
			calls = append(calls, fx.calls(1)...)
			sleep(timeout/2 - time.Nanosecond)
			for i, f := range fx.flights {
				if err := f.ctx.Err(); err != nil {
					t.Errorf("before the deadline, flight %d: %v", i, err)
				}
				last = f.ctx
			}
			fx.answerAll()
			fx.wantReplies(calls)
		}
		fx.Close()
		if last.Err() == nil {
			t.Error("Close left a context behind")
		}
	})
}

// Withdraw takes back a queued call. A call in flight is answered all the same.
func TestWithdraw(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.calls(10)
		for i, want := range map[int]bool{0: false, 3: false, 4: true, 6: true, 9: true} {
			if fx.Withdraw(calls[i]) != want {
				t.Fatalf("call %d: Withdraw = %v, want %v", i, !want, want)
			}
		}
		sent := append(slices.Clone(calls[:4]), calls[5], calls[7], calls[8])
		sleep(leastSlow)
		fx.wantSizes("what was not withdrawn", 1, 1, 1, 1, 3)
		fx.answerAll()
		fx.wantReplies(sent)
		for _, c := range []*Call{calls[4], calls[6], calls[9]} {
			if len(c.Reply) > 0 {
				t.Errorf("%s was withdrawn but answered", c.Key())
			}
		}
		if fx.sent != len(sent) {
			t.Errorf("%d commands were sent, want %d", fx.sent, len(sent))
		}
		if fx.Withdraw(calls[0]) || fx.Withdraw(newCall("never sent")) {
			t.Error("Withdraw took back a finished call")
		}
	})
}

// Renewals do not queue behind other calls.
func TestLane_RenewalsDoNotQueue(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.calls(1)
		for len(fx.sizes()) < pooled.most {
			sleep(leastSlow)
			calls = append(calls, fx.calls(1)...)
		}
		calls = append(calls, fx.calls(100)...)
		for range 3 {
			before := len(fx.sizes())
			renewal := newCall("renewal")
			renewal.Purpose = Renewals
			fx.Send(renewal, time.Now())
			if n := len(fx.sizes()); n != before+1 {
				t.Fatalf("%d flights, want %d: the renewal waits", n, before+1)
			}
			calls = append(calls, renewal)
		}
		fx.answerAll()
		fx.wantReplies(calls)
	})
}

// An error reply reaches its own caller only. A connection error reaches every caller on it.
func TestErrors_ReachTheirCallers(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.calls(4 + 3)
		for range 3 {
			fx.answer(nil)
		}
		fx.wantSizes("a pipeline of three", 1, 3)
		fx.answer(nil)
		fx.wantReplies(calls[:4])
		synctest.Wait()
		pipeline := fx.flights[0]
		fx.flights = nil
		own := errors.New("its own")
		pipeline.cmds[0].(onceCmd).SetVal(calls[4].Key())
		pipeline.cmds[1].SetErr(own)
		pipeline.cmds[2].(onceCmd).SetVal(calls[6].Key())
		pipeline.done <- own
		fx.wantReplies([]*Call{calls[4], calls[6]})
		wantErr(t, calls[5], own)

		dead := errors.New("broken pipe")
		calls = fx.calls(4 + 3)
		for range 7 {
			if len(fx.sizes()) == 0 {
				break
			}
			fx.answer(dead)
		}
		for _, c := range calls {
			wantErr(t, c, dead)
		}

		// A server refuses a connection with an error reply: go-redis returns it for the pipeline
		// only.
		calls = fx.calls(4 + 3)
		for range 3 {
			fx.answer(nil)
		}
		fx.answer(nil)
		fx.wantReplies(calls[:4])
		refused := errors.New("ERR max number of clients reached")
		synctest.Wait()
		fx.flights[0].done <- refused
		fx.flights = nil
		for _, c := range calls[4:] {
			wantErr(t, c, refused)
		}
	})
}

// A WAIT confirms only the calls of its exchange. It does not confirm an earlier exchange with
// calls that had to be sent again.
func TestAcks_WhatAWaitConfirms(t *testing.T) {
	withFakeClockAnd(t, Config{Acks: 2, AckTimeout: time.Second}, func(fx *batchFixture) {
		unknown := ""
		answer := func(acks any) {
			synctest.Wait()
			cmds := fx.flights[0].cmds
			if last := cmds[len(cmds)-1].Args(); last[0] != "WAIT" || last[1] != 2 {
				t.Fatalf("the last command is %v", last)
			}
			fx.answerEach(func(cmd redis.Cmder) (any, error) {
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
			fx.Send(c, time.Now())
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
		fx.wantSizes("a pipeline", 3+1)
		unknown = "key 4"
		answer(int64(1))
		fx.wantSizes("the one that was not executed", 1+1)
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
	withFakeClock(t, func(fx *batchFixture) {
		stop := make(chan struct{})
		var answers sync.WaitGroup
		answers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				fx.answerOne()
			}
		})
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				for round := range 20 {
					c := newCall(fmt.Sprint(i, " ", round))
					if i%3 == 0 {
						if r := fx.stay(c); r.Value != c.Key() {
							t.Errorf("%s: reply %v, %v", c.Key(), r.Value, r.Err)
						}
						continue
					}
					fx.Send(c, time.Now())
					select {
					case r := <-c.Reply:
						if r.Value != c.Key() {
							t.Errorf("%s: reply %v, %v", c.Key(), r.Value, r.Err)
						}
					case <-time.After(time.Duration(i%7) * time.Millisecond):
						if !fx.Withdraw(c) {
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
