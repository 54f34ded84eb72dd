package redisop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/redisclient"
)

const patience = 20 * time.Second

var errClosed = errors.New("closed")

// newRunner returns a runner whose commands pass a proxy.
func newRunner(t *testing.T) (*Runner, *redistest.Proxy) {
	t.Helper()
	proxy := redistest.Start(t).Proxy(t)
	var background sync.WaitGroup
	r := New(Config{
		Redis:   redisclient.Client{UniversalClient: proxy.Client(t)},
		Timeout: patience,
		Clock:   clock.At,
		Logger:  slog.New(slog.DiscardHandler),
		Closed:  errClosed,
		Background: func(f func()) bool {
			background.Go(f)
			return true
		},
	})
	t.Cleanup(func() {
		background.Wait()
		r.Close()
	})
	return r, proxy
}

// acquires matches commands of the acquire script.
func acquires(args []string) bool { return args[0] == "EVALSHA" || args[0] == "EVAL" }

func acquire(name string) lua.Call { return lua.Acquire(name, "owner:1", time.Second) }

// The deadline may cut the last of many tries short. What Redis answered before says more then.
func TestOp_Blame(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t)
	readOnly, refused := redisError("READONLY x"), errors.New("connection refused")
	justNow, longAgo := time.Now().Add(patience), time.Now().Add(-patience) // the test may be slow
	for _, test := range []struct {
		what string
		// begun is when the last try began.
		begun     time.Time
		earlier   error
		err, want error
	}{
		{"a short try after an answer", justNow, readOnly, batch.ErrUnanswered, readOnly},
		{"a try that was never sent", justNow, readOnly, batch.ErrUnsent, readOnly},
		{"a long try after an answer", longAgo, readOnly, batch.ErrUnanswered, batch.ErrUnanswered},
		{"a short try after another error", justNow, refused, batch.ErrUnanswered, batch.ErrUnanswered},
		{"an only try", justNow, nil, batch.ErrUnanswered, batch.ErrUnanswered},
		{"an answer", justNow, readOnly, refused, refused},
	} {
		x := &Op{r: r, begun: test.begun, earlier: test.earlier}
		if got := x.blame(test.err); got != test.want {
			t.Errorf("%s: %v, want %v", test.what, got, test.want)
		}
	}
}

func TestOp_Outcome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action  redistest.Action
		timeout time.Duration
		want    Outcome
		stray   bool
	}{
		"refused":      {redistest.ReplyWith("-MASTERDOWN Link with MASTER is down.\r\n"), patience, NotExecuted, false},
		"failed":       {redistest.ReplyWith("-ERR something\r\n"), patience, Unknown, true},
		"not answered": {redistest.HoldReply, 200 * time.Millisecond, Unknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, proxy := newRunner(t)
			rule := proxy.OnEvery(acquires, test.action)
			x := r.Op(acquire("a"), test.timeout)
			_, err := x.Run(Until{})
			if err == nil || x.Outcome() != test.want || x.TryUnanswered() != test.stray {
				t.Errorf("outcome %d, stray %v (%v)", x.Outcome(), x.TryUnanswered(), err)
			}
			rule.Remove()
			rule.Release()
		})
	}
}

// If a reply is lost, the call is sent again, and the first try stays in doubt.
func TestOp_LostReply(t *testing.T) {
	t.Parallel()
	r, proxy := newRunner(t)
	proxy.OnMatch(1, acquires, redistest.CutAfter)
	x := r.Op(acquire("a"), patience)
	if _, err := x.Run(Until{}); err != nil || x.Outcome() != Executed || !x.TryUnanswered() {
		t.Errorf("outcome %d, stray %v (%v)", x.Outcome(), x.TryUnanswered(), err)
	}
}

// If Redis asks for a retry, it gets one, unless the caller is hasty.
func TestOp_Hasty(t *testing.T) {
	t.Parallel()
	r, proxy := newRunner(t)
	busy := func() { proxy.OnMatch(1, acquires, redistest.ReplyWith("-TRYAGAIN Multiple keys\r\n")) }
	busy()
	x := r.Op(acquire("a"), patience)
	if _, err := x.Run(Until{}); err != nil {
		t.Errorf("another try: %v", err)
	}
	busy()
	x = r.Op(acquire("b"), patience).Hasty()
	if _, err := x.Run(Until{}); err == nil || !x.Busy() || x.Outcome() != NotExecuted {
		t.Errorf("no other try: outcome %d (%v)", x.Outcome(), err)
	}
	x.Replace(acquire("c"))
	if _, err := x.Run(Until{}); err != nil || x.Outcome() != Executed {
		t.Errorf("another call: outcome %d (%v)", x.Outcome(), err)
	}
}

func TestOp_UntilSent(t *testing.T) {
	t.Parallel()
	r, proxy := newRunner(t)
	away := func() {
		proxy.OnMatch(1, acquires, redistest.ReplyWith("-MASTERDOWN Link with MASTER is down.\r\n"))
	}
	away()
	x := r.Op(acquire("a"), patience)
	if _, err := x.Run(Until{}); !HasCode(err, "MASTERDOWN") {
		t.Errorf("an acquire: %v, want the refusal", err)
	}
	away()
	x = r.Op(acquire("b"), patience).UntilSent()
	if _, err := x.Run(Until{}); err != nil || x.TryUnanswered() {
		t.Errorf("a release: %v, stray %v", err, x.TryUnanswered())
	}
}

// If the last try is too late for an answer, the error says what Redis answered before, but does
// not count as that answer.
func TestOp_EarlierAnswer(t *testing.T) {
	t.Parallel()
	r, proxy := newRunner(t)
	proxy.OnMatch(1, acquires, redistest.ReplyWith("-LOADING Redis is loading\r\n"))
	silent := proxy.OnMatch(2, acquires, redistest.HoldReply)
	x := r.Op(acquire("a"), 3*time.Second) // enough for the first answer
	_, err := x.Run(Until{})
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "LOADING") || IsAnswer(err) || x.Outcome() != Unknown {
		t.Errorf("%v, outcome %d; want a timeout that names LOADING", err, x.Outcome())
	}
	if x.isOver() {
		t.Error("the operation is over, but the batcher may still use it")
	}
	silent.Release()
}

// A caller leaves at once. Await then finds the outcome of its try.
func TestOp_Leave(t *testing.T) {
	t.Parallel()
	r, proxy := newRunner(t)
	rule := proxy.OnMatch(1, acquires, redistest.HoldReply)
	ctx, leave := context.WithCancel(t.Context())
	x := r.Op(acquire("a"), patience)
	go func() {
		<-rule.Hit()
		leave()
	}()
	if _, err := x.Run(Until{Context: ctx}); err != ErrLeft || !x.InFlight() {
		t.Fatalf("Run: %v, in flight: %v", err, x.InFlight())
	}
	rule.Release()
	if _, err := x.Await(); err != nil || x.Outcome() != Executed {
		t.Errorf("Await: %v, outcome %d", err, x.Outcome())
	}
}

// An Op is not reused while the batcher may still send it.
func TestOp_IsOver(t *testing.T) {
	t.Parallel()
	r, proxy := newRunner(t)
	answered := r.Op(acquire("a"), patience)
	if _, err := answered.Run(Until{}); err != nil || !answered.isOver() {
		t.Errorf("answered: %v; it is over: %v, want true", err, answered.isOver())
	}
	held := proxy.OnEvery(acquires, redistest.HoldReply)
	unanswered := r.Op(acquire("b"), 100*time.Millisecond)
	if _, err := unanswered.Run(Until{}); !errors.Is(err, ErrTimeout) || unanswered.isOver() {
		t.Errorf("unanswered: %v; it is over: %v, want false", err, unanswered.isOver())
	}
	held.Remove()
	held.Release()
}

// tryOnce sends the call once, without the retries that follow a lost reply.
func tryOnce(r *Runner, call lua.Call) batch.Reply {
	x := r.Op(call, patience)
	x.prepare()
	x.r.batcher.Send(&x.call, x.begun)
	return <-x.call.Reply
}

// By default the Redis client resends a command whose reply was lost. It must not resend ours: an
// Op must know of every try.
func TestRedisClientRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action redistest.Action
		lost   bool
	}{
		"cut before execution": {redistest.CutBefore, true},
		"cut after execution":  {redistest.CutAfter, true},
		"loading":              {redistest.ReplyWith("-LOADING not now\r\n"), false},
		"try again":            {redistest.ReplyWith("-TRYAGAIN not now\r\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, proxy := newRunner(t)
			rdb := proxy.Client(t)
			proxy.OnEvery(func(args []string) bool { return args[0] == "EVALSHA" }, test.action)
			if reply := tryOnce(r, acquire("a")); reply.Err == nil || IsAnswer(reply.Err) == test.lost {
				t.Errorf("reply %v, %v", reply.Value, reply.Err)
			}
			if n := proxy.Count("EVALSHA"); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
			call := acquire("a")
			if err := rdb.Do(context.Background(), call.EvalSHA()...).Err(); err == nil {
				t.Error("an ordinary command got through")
			}
			if n := proxy.Count("EVALSHA"); n < 3 {
				t.Errorf("an ordinary command was sent %d times: this test shows nothing", n-1)
			}
		})
	}
}

// Nor is the text of a script resent that follows its digest.
func TestRedisClientRepeatsNoText(t *testing.T) {
	t.Parallel()
	r, proxy := newRunner(t)
	proxy.OnEvery(func(args []string) bool { return args[0] == "EVAL" }, redistest.CutAfter)
	if reply := tryOnce(r, acquire("a")); reply.Err == nil || IsAnswer(reply.Err) {
		t.Errorf("reply %v, %v", reply.Value, reply.Err)
	}
	if n := proxy.Count("EVAL"); n != 1 {
		t.Errorf("the text was sent %d times", n)
	}
}

func TestRunner_Close(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t)
	r.Close()
	if _, err := r.Op(acquire("a"), patience).Run(Until{}); err != errClosed {
		t.Errorf("after Close: %v", err)
	}
}

// The error of a try tells how the try ended.
func TestEndOf(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for err, want := range map[error]end{
		nil:                                      answered,
		dial:                                     away,
		errors.Join(errors.New("no node"), dial): away,
		redis.ErrPoolTimeout:                     away,
		fmt.Errorf("pool: %w", redis.ErrPoolExhausted): away,
		batch.ErrUnsent: away,
		batch.ErrClosed: refused,
		redis.ErrClosed: refused,
		batch.ErrStale:  moved,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}: lost,
		context.DeadlineExceeded:                          lost,
	} {
		if got := endOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
	for text, want := range map[string]end{
		"MOVED 1 127.0.0.1:1": away, "ASK 1 127.0.0.1:1": away, "READONLY x": moved, "ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -READONLY x": moved, "CLUSTERDOWN x": away, "MASTERDOWN x": away,
		"BUSY x": away, "WRONGTYPE x": refused, "WRONGKIND x": refused, "TRYAGAIN x": busy, "LOADING x": busy,
		"ERR x": failed, "NOPERM x": failed, "OOM x": failed, "MISCONF x": failed, "NOREPLICAS x": failed, "EXECABORT x": failed,
		"NOAUTH x": refused, "WRONGPASS x": refused, "DENIED x": refused, "ERR unknown command 'EVALSHA'": refused, "ERR max number of clients reached": away,
		"ERR Unknown Redis command called from script script: 1": failed,
	} {
		if got := endOf(redisError(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// A time-out of the Redis client does not look like the end of the caller's context.
func TestOpaque(t *testing.T) {
	t.Parallel()
	r := &Runner{cfg: Config{Closed: errClosed}}
	for err, want := range map[error]error{
		batch.ErrClosed:                   errClosed,
		batch.ErrUnanswered:               ErrTimeout,
		redisError("WRONGTYPE Operation"): ErrWrongKind,
		redisError("WRONGKIND the key"):   ErrWrongKind,
		context.DeadlineExceeded:          ErrAborted,
		io.EOF:                            io.EOF,
	} {
		got := r.Opaque(err)
		if !errors.Is(got, want) || errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestFaultOf(t *testing.T) {
	t.Parallel()
	reply := func(text string) error { return redisError(text) }
	for _, test := range []struct {
		err  error
		want *Fault
	}{
		{nil, nil},
		{redis.Nil, nil},
		{batch.ErrClosed, nil},
		{ErrWrongKind, nil},
		{reply("WRONGTYPE Operation against a key"), nil},
		{reply("NOSCRIPT No matching script"), nil},
		{reply("MOVED 1 127.0.0.1:7000"), nil},
		{reply("ASK 1 127.0.0.1:7000"), nil},
		{reply("TRYAGAIN Multiple keys"), nil},
		{reply("CROSSSLOT Keys in request"), nil},
		{reply("NOAUTH Authentication required."), faultLogin},
		{reply("ERR AUTH <password> called without any password configured"), faultLogin},
		{reply("NOPERM No permissions to access a key"), faultPermission},
		{reply("ERR The user executing the script can't run this command"), faultPermission},
		{reply("MISCONF Redis is configured to save RDB snapshots"), faultCannotSave},
		{reply("MASTERDOWN Link with MASTER is down"), faultStaleReplica},
		{reply("CLUSTERDOWN The cluster is down"), faultClusterDown},
		{reply("LOADING Redis is loading"), faultLoading},
		{reply("BUSY Redis is busy running a script"), faultBusy},
		{reply("ERR max number of clients reached"), faultTooManyClients},
		{reply("DENIED Redis is running in protected mode"), faultProtected},
		{reply("ERR unknown command 'EVALSHA'"), faultNoCommand},
		{reply("ERR something"), faultOther},
		{fmt.Errorf("around: %w", reply("OOM command not allowed")), faultOutOfMemory},
		{redis.ErrClosed, faultClientClosed},
		{redis.ErrPoolTimeout, faultPoolEmpty},
		{batch.ErrUnsent, faultSilent},
		{batch.ErrUnanswered, faultSilent},
		{ErrTimeout, faultSilent},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, faultSilent},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, faultUnreachable},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, faultUnreachable},
		{io.EOF, faultUnreachable},
	} {
		if got := FaultOf(test.err); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.err, got, test.want)
		}
	}
}

func TestHeals(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		io.EOF:                  true,
		redis.ErrPoolTimeout:    true,
		redisError("LOADING x"): true, redisError("TRYAGAIN x"): true, redisError("OOM x"): true, redisError("READONLY x"): true,
		redisError("NOPERM x"): false, redisError("NOAUTH x"): false, redisError("ERR x"): false,
		ErrWrongKind: false, ErrNotReplicated: false, lua.ErrUnexpected: false,
		errors.New("tls: failed to verify certificate"): false,
	} {
		if got := Heals(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// A redisError is an error reply.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}
