package batch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// lined returns a batcher whose lane of ordinary calls has a line, and what its connections go
// through.
func lined(t *testing.T) (*Batcher, *redistest.Proxy) {
	t.Helper()
	proxy := redistest.Start(t).Proxy(t)
	b := New(Config{Redis: one(proxy.Client(t)), Timeout: 30 * time.Second})
	t.Cleanup(b.Close)
	waitForLines(t, b, 1)
	return b, proxy
}

// waitForLines sends calls until the lane has a number of lines.
func waitForLines(t *testing.T, b *Batcher, n int) {
	t.Helper()
	l := b.server.of[Ordinary]
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		now := len(l.lines)
		l.mu.Unlock()
		if now >= n {
			return
		}
		if r := b.stay(soonCall("warm")); r.Err != nil || time.Now().After(end) {
			t.Errorf("the lane has %d lines, want %d; %v", now, n, r.Err)
			return
		}
	}
}

// eventually waits for what a lane does by itself, of which there is no event.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func mustAnswer(t *testing.T, b *Batcher, key string) {
	t.Helper()
	if r := b.stay(soonCall(key)); r.Err != nil {
		t.Fatal(r.Err)
	}
}

// soonCall is newCall with a deadline within the timeout of lined.
func soonCall(key string) *Call {
	return &Call{Call: lua.Probe(key), Deadline: time.Now().Add(30 * time.Second), Reply: make(chan Reply, 1)}
}

// Callers whose contexts end leave at once, though Redis does not answer, and leave the connection
// to others. Their replies arrive on their channels all the same, and nothing is dialed for them.
func TestDuplex_CallersLeave(t *testing.T) {
	t.Parallel()
	b, proxy := lined(t)
	dials := proxy.Count("HELLO")
	for i := range 20 {
		held := proxy.OnMatch(1, probes, redistest.HoldReply)
		ctx, leave := context.WithCancel(t.Context())
		c := soonCall(fmt.Sprint("left", i))
		done := make(chan bool, 1)
		go func() {
			_, left := b.Do(c, time.Now(), Until{Context: ctx})
			done <- left
		}()
		<-held.Hit()
		leave()
		select {
		case left := <-done:
			if !left {
				t.Fatal("the caller got a reply that Redis has not sent")
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the caller did not leave")
		}
		if b.Withdraw(c) {
			t.Error("a call in flight was withdrawn")
		}
		held.Release()
		if r := <-c.Reply; r.Err != nil {
			t.Error(r.Err)
		}
		mustAnswer(t, b, "next")
	}
	if n := proxy.Count("HELLO") - dials; n > mostLines {
		t.Errorf("%d connections were dialed for 20 callers that left, want %d at most", n, mostLines)
	}
}

// A script that Redis does not know is sent with its text, also if the caller has left and the line
// takes no flights any more.
func TestDuplex_UnknownScriptOfACallerThatLeft(t *testing.T) {
	t.Parallel()
	b, proxy := lined(t)
	held := proxy.OnMatch(1, probes, redistest.HoldReply)
	if err := b.server.of[Ordinary].node.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	c := soonCall("k")
	done := make(chan bool, 1)
	go func() {
		_, left := b.Do(c, time.Now(), Until{Context: ctx})
		done <- left
	}()
	<-held.Hit()
	leave()
	if left := <-done; !left {
		t.Fatal("the caller has not left")
	}
	l := b.server.of[Ordinary]
	l.mu.Lock()
	for _, d := range l.lines {
		d.retire()
	}
	l.mu.Unlock()
	held.Release()
	if r := <-c.Reply; r.Err != nil {
		t.Error(r.Err)
	}
}

// probes accepts the calls of these tests.
func probes(args []string) bool {
	return len(args) > 3 && strings.HasPrefix(strings.ToUpper(args[0]), "EVAL")
}

// Closing ends the wait of a caller that reads, after Interrupt, even if its line was retired
// meanwhile.
func TestDuplex_Interrupt(t *testing.T) {
	t.Parallel()
	for name, retired := range map[string]bool{"a line in use": false, "a retired line": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testInterrupt(t, retired)
		})
	}
}

func testInterrupt(t *testing.T, retired bool) {
	b, proxy := lined(t)
	held := proxy.OnMatch(1, probes, redistest.HoldReply)
	closing, c, done := make(chan struct{}), soonCall("k"), make(chan bool, 1)
	go func() {
		_, left := b.Do(c, time.Now(), Until{Context: t.Context(), Closing: closing})
		done <- left
	}()
	<-held.Hit()
	if retired {
		l := b.server.of[Ordinary]
		l.mu.Lock()
		for _, d := range l.lines {
			d.retire()
		}
		l.mu.Unlock()
		mustAnswer(t, b, "k") // a lane looks at its lines when it sends
	}
	close(closing)
	b.Interrupt()
	if left := <-done; !left {
		t.Error("the caller got a reply that Redis has not sent")
	}
	held.Release()
	if r := <-c.Reply; r.Err != nil {
		t.Error(r.Err)
	}
}

// A reply that does not come keeps no other call back.
func TestDuplex_SlowLineKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	b, proxy := lined(t)
	var warm sync.WaitGroup
	for range 2 * mostLines {
		warm.Go(func() { waitForLines(t, b, mostLines) })
	}
	warm.Wait()
	held := proxy.OnEvery(func(args []string) bool { return probes(args) && strings.HasPrefix(args[3], "held") }, redistest.HoldReply)
	var calls []*Call
	for i := range mostLines {
		calls = append(calls, soonCall(fmt.Sprint("held", i)))
		b.Send(calls[i], time.Now())
	}
	eventually(t, "the held flights to be slow", func() bool { return allSlow(b) })
	began := time.Now()
	for i := range 50 {
		mustAnswer(t, b, fmt.Sprint("free", i))
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("50 calls beside calls that are not answered took %s", took)
	}
	held.Remove()
	held.Release()
	for _, c := range calls {
		if r := <-c.Reply; r.Err != nil {
			t.Error(r.Err)
		}
	}
}

// allSlow reports whether the oldest flight of each line of the lane of ordinary calls is slow.
func allSlow(b *Batcher) bool {
	l := b.server.of[Ordinary]
	l.mu.Lock()
	defer l.mu.Unlock()
	slow := time.Now().Add(-l.slowAfterLocked())
	return !slices.ContainsFunc(l.busy, func(r *runner) bool { return r.started.After(slow) })
}

// A connection that the server has closed while nothing was in flight costs no call its reply.
func TestDuplex_ClosedByTheServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	b := New(Config{Redis: one(srv.Client(t)), Timeout: 30 * time.Second})
	t.Cleanup(b.Close)
	admin := srv.Client(t)
	for range 20 {
		waitForLines(t, b, 1)
		if err := admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		l := b.server.of[Ordinary]
		l.mu.Lock()
		for _, d := range l.lines {
			eventually(t, "the end of the connection to arrive", d.peer.hasEnded)
		}
		l.mu.Unlock()
		mustAnswer(t, b, "k")
	}
}

// A line is replaced when it is older, or was silent for longer, than the Redis client's options allow.
func TestDuplex_Age(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *redis.Options){
		"lifetime":  func(o *redis.Options) { o.ConnMaxLifetime = time.Millisecond },
		"idle time": func(o *redis.Options) { o.ConnMaxIdleTime = time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := New(Config{Redis: one(redistest.Start(t).ClientWith(t, change)), Timeout: 30 * time.Second})
			t.Cleanup(b.Close)
			var lines []*duplex
			for end := time.Now().Add(20 * time.Second); len(lines) < 3; time.Sleep(2 * time.Millisecond) {
				mustAnswer(t, b, "k")
				l := b.server.of[Ordinary]
				l.mu.Lock()
				for _, d := range l.lines {
					if !slices.Contains(lines, d) {
						lines = append(lines, d)
					}
				}
				l.mu.Unlock()
				if time.Now().After(end) {
					t.Fatalf("%d lines one after the other, want 3", len(lines))
				}
			}
			if lines[0] == lines[1] || !lines[0].retired.Load() {
				t.Error("the first line is still in use")
			}
		})
	}
}

// Close waits for the goroutines that hang up the lines, whatever is in flight.
func TestDuplex_CloseUnderLoad(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for range 100 {
		b := New(Config{Redis: one(srv.Client(t)), Timeout: 30 * time.Second})
		waitForLines(t, b, 1)
		var callers sync.WaitGroup
		for range 12 {
			callers.Go(func() {
				for {
					switch r := b.stay(soonCall("k")); r.Err {
					case nil:
					case ErrClosed:
						return
					default:
						t.Error(r.Err)
						return
					}
				}
			})
		}
		mustAnswer(t, b, "k")
		b.Close()
		callers.Wait()
	}
}

// While a further line is dialed, few flights go through the pool, and the others share a line. A dial
// takes many round trips, and the pool has few connections.
func TestDuplex_SharedWhileAnotherIsDialed(t *testing.T) {
	t.Parallel()
	b, proxy := lined(t)
	l := b.server.of[Ordinary]
	// The line that waitForLines has waited for is not the last one to be dialed.
	eventually(t, "a pause between two dials", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.dialing {
			return false
		}
		l.dialing = true // The test ends it.
		return true
	})
	l.mu.Lock()
	for _, d := range l.lines[1:] {
		d.retire()
	}
	l.lines = l.lines[:1]
	l.trip.reset(time.Second, time.Now()) // far away, so that each call is a flight
	l.mu.Unlock()
	held := proxy.OnEvery(probes, redistest.HoldReply)
	const callers = 20
	var answered sync.WaitGroup
	for range callers {
		answered.Go(func() {
			if r := b.stay(soonCall("k")); r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
	eventually(t, "all but a few flights to share the line", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.lines[0].users == callers-pooled.most
	})
	held.Remove()
	held.Release()
	answered.Wait()
	l.mu.Lock()
	l.dialing = false
	l.mu.Unlock()
}

// The replies to callers that have left are read by the one whose reply comes first, while the runners
// that go on for them look at their flights.
func TestDuplex_AnotherReadsForThoseThatLeft(t *testing.T) {
	t.Parallel()
	b, proxy := lined(t)
	l := b.server.of[Ordinary]
	eventually(t, "the lane to have one line and to dial no other", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dialAt = time.Now().Add(time.Hour)
		for _, d := range l.lines[1:] {
			d.retire()
		}
		l.lines = l.lines[:1]
		l.trip.reset(time.Second, time.Now()) // far away, so that each call is a flight
		return !l.dialing
	})
	line := l.lines[0]
	flying := func(n int) func() bool {
		return func() bool {
			line.mu.Lock()
			defer line.mu.Unlock()
			return line.flights.len() == n
		}
	}
	for range 100 {
		held := proxy.OnEvery(probes, redistest.HoldReply)
		first := make(chan Reply, 1)
		go func() { first <- b.stay(soonCall("first")) }()
		eventually(t, "the first flight", flying(1))
		ctx, leave := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				c := soonCall("k")
				r, left := b.Do(c, time.Now(), Until{Context: ctx})
				if left {
					r = <-c.Reply
				}
				if r.Err != nil {
					t.Error(r.Err)
				}
			})
		}
		eventually(t, "the flights of all callers", flying(21))
		held.Remove()
		go leave()
		held.Release()
		callers.Wait()
		if r := <-first; r.Err != nil {
			t.Error(r.Err)
		}
	}
}

// Many callers get their own replies, in parcels near the server and on shared lines far from it, while
// others leave.
func TestDuplex_Crowd(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"near": 0, "far": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.Start(t).Proxy(t)
			if delay > 0 {
				proxy.OnEvery(func([]string) bool { return true }, redistest.Delay(delay))
			}
			b := New(Config{Redis: one(proxy.Client(t)), Timeout: 30 * time.Second})
			t.Cleanup(b.Close)
			waitForLines(t, b, 1)
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					for j := range 50 {
						acquireInCrowd(t, b, fmt.Sprint(i, ":", j), (i+j)%7 == 0)
					}
				})
			}
			wg.Wait()
		})
	}
}

// acquireInCrowd takes a lock, and leaves at some time if it is told to.
func acquireInCrowd(t *testing.T, b *Batcher, key string, leaves bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if leaves {
		go cancel()
	}
	c := &Call{Call: lua.Acquire(key, "me", time.Minute), Deadline: time.Now().Add(30 * time.Second), Reply: make(chan Reply, 1)}
	r, left := b.Do(c, time.Now(), Until{Context: ctx})
	if left {
		if b.Withdraw(c) {
			return
		}
		r = <-c.Reply
	}
	if answer, err := c.ReadAcquire(r.Value); r.Err != nil || err != nil || !answer.Granted {
		t.Errorf("%s: %v %v %v", key, r, answer, err)
	}
}

// When a line fails, each call in flight learns that, once.
func TestDuplex_Cut(t *testing.T) {
	t.Parallel()
	b, proxy := lined(t)
	proxy.OnMatch(1, probes, redistest.CutAfter)
	if r := b.stay(soonCall("k")); r.Err == nil || errors.Is(r.Err, ErrUnsent) {
		t.Errorf("a call whose connection was cut: %v", r.Err)
	}
	mustAnswer(t, b, "k")
}

// The limits follow the round trip.
func TestLimits_FollowTheRoundTrip(t *testing.T) {
	t.Parallel()
	for trip, want := range map[time.Duration]int{farFrom: 8, time.Millisecond: 20, 5 * time.Millisecond: 100, time.Second: mostFar} {
		if l := far(trip); l.window != want || l.few != want {
			t.Errorf("%s away: %d and %d in flight, want %d", trip, l.few, l.window, want)
		}
	}
	var r roundTrip
	began := time.Now()
	r.reset(5*time.Millisecond, began)
	r.add(50*time.Microsecond, began)
	r.add(9*time.Millisecond, began)
	want := func(what string, least time.Duration) {
		t.Helper()
		if got := r.least(); got != least {
			t.Errorf("%s: the round trip is %s, want %s", what, got, least)
		}
	}
	want("at once", 50*time.Microsecond)
	if r.due(began.Add(leastRemeasure-1)) || !r.due(began.Add(leastRemeasure)) {
		t.Error("a measurement near the server counts for another time than leastRemeasure")
	}
	r.add(4*time.Millisecond, began.Add(sampleTime))
	want("in the next half minute", 50*time.Microsecond)
	r.add(6*time.Millisecond, began.Add(2*sampleTime))
	want("when that sample is too old", 4*time.Millisecond)
	r.add(8*time.Millisecond, began.Add(3*sampleTime))
	want("later", 6*time.Millisecond)
}

// parseReply reads what go-redis reads, whatever pieces it arrives in.
func TestParseReply(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]any{
		":12\r\n":                             int64(12),
		":-1\r\n":                             int64(-1),
		"+OK\r\n":                             "OK",
		"$5\r\nab\r\nc\r\n":                   "ab\r\nc",
		"$0\r\n\r\n":                          "",
		"$-1\r\n":                             nil,
		"*-1\r\n":                             nil,
		"_\r\n":                               nil,
		"#t\r\n":                              true,
		"=7\r\ntxt:abc\r\n":                   "txt:abc",
		"*0\r\n":                              []any{},
		"*3\r\n:1\r\n$1\r\nx\r\n*1\r\n_\r\n":  []any{int64(1), "x", []any{nil}},
		"-NOSCRIPT No matching script.\r\n":   like(redis.ErrNoScript, "NOSCRIPT No matching script."),
		"!5\r\nERR x\r\n":                     like(redis.ErrNoScript, "ERR x"),
		"*2\r\n-WRONGTYPE no\r\n:2\r\n":       []any{like(redis.ErrNoScript, "WRONGTYPE no"), int64(2)},
		">2\r\n$7\r\nmessage\r\n$2\r\nhi\r\n": []any{"message", "hi"},
		"%1\r\n+a\r\n:1\r\n":                  odd{'%', []any{"a", int64(1)}},
		",1.5\r\n":                            odd{',', "1.5"},
	} {
		for n := range len(raw) {
			if v, length, _, err := parseReply([]byte(raw[:n])); length != 0 || err != nil {
				t.Errorf("%q, of which %d bytes are there: %v, %d, %v", raw, n, v, length, err)
			}
		}
		v, length, push, err := parseReply([]byte(raw + ":9\r\n"))
		if err != nil || length != len(raw) || push != (raw[0] == '>') || !reflect.DeepEqual(v, want) {
			t.Errorf("%q: %#v, %d bytes, push %v, %v; want %#v", raw, v, length, push, err, want)
		}
	}
	for _, raw := range []string{"?\r\n", ":x\r\n", "\n", "x\n", "$1\r\nabc", "*1\r\n>0\r\n", "$99999999999\r\n"} {
		if v, length, _, err := parseReply([]byte(raw)); err == nil {
			t.Errorf("%q: %v, %d bytes, want an error", raw, v, length)
		}
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add([]byte("*2\r\n:1\r\n$1\r\nx\r\n"))
	f.Add([]byte("*1\r\n*1\r\n*1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, n, _, err := parseReply(b); n < 0 || n > len(b) || err != nil && n != 0 {
			t.Errorf("%q: %d bytes, %v", b, n, err)
		}
	})
}

// A hook that tries again does not confuse a line when a caller leaves.
func TestDuplex_HookTriesAgain(t *testing.T) {
	t.Parallel()
	proxy := redistest.Start(t).Proxy(t)
	rdb := proxy.Client(t)
	rdb.AddHook(stubborn{})
	b := New(Config{Redis: one(rdb), Timeout: 30 * time.Second})
	t.Cleanup(b.Close)
	waitForLines(t, b, 1)
	for i := range 10 {
		held := proxy.OnMatch(1, probes, redistest.HoldReply)
		ctx, leave := context.WithCancel(t.Context())
		c, done := soonCall(fmt.Sprint("left", i)), make(chan bool, 1)
		go func() {
			_, left := b.Do(c, time.Now(), Until{Context: ctx})
			done <- left
		}()
		<-held.Hit()
		leave()
		<-done
		held.Release()
		if r := <-c.Reply; r.Err != nil {
			t.Error(r.Err)
		}
		mustAnswer(t, b, "next")
	}
}

// stubborn is a hook that sends each script twice.
type stubborn struct{}

func (stubborn) DialHook(next redis.DialHook) redis.DialHook { return next }

func (stubborn) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			_ = next(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (stubborn) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
