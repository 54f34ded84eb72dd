package batch

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// A call sent on the caller's goroutine ends at its deadline, even if the client's timeouts are
// longer.
func TestDo_LongClientTimeouts(t *testing.T) {
	t.Parallel()
	proxy := redistest.Start(t).Proxy(t)
	rdb := proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout = time.Hour })
	const timeout = 2 * time.Second // enough for the replies that must come
	b := New(Config{Redis: one(rdb), Timeout: timeout})
	t.Cleanup(b.Close)
	do := func() Reply {
		c := newCall("staying")
		c.Deadline = time.Now().Add(timeout)
		return b.stay(c)
	}
	for range 2 {
		if r := do(); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	proxy.Stall()
	defer proxy.Restore()
	answer := make(chan Reply, 1)
	go func() { answer <- do() }()
	select {
	case r := <-answer:
		if r.Err == nil {
			t.Errorf("got a reply from a silent server: %v", r.Value)
		}
	case <-time.After(time.Minute):
		t.Fatal("the caller waited for the client's timeout")
	}
}

// The derived client has the same timeouts and obeys contexts.
func TestWithContextTimeouts(t *testing.T) {
	t.Parallel()
	for own, want := range map[time.Duration]time.Duration{timeout: timeout, -1: 0, -2: 0} {
		for _, o := range []redis.Options{
			{ReadTimeout: own, WriteTimeout: time.Hour},
			{ReadTimeout: time.Hour, WriteTimeout: own},
		} {
			rdb := redis.NewClient(&o)
			got, before := withContextTimeouts(rdb).Options(), *rdb.Options()
			if min(got.ReadTimeout, got.WriteTimeout) != want || max(got.ReadTimeout, got.WriteTimeout) != time.Hour || !got.ContextTimeoutEnabled {
				t.Errorf("with time-outs of %v and %v: %v and %v, contexts %v", o.ReadTimeout, o.WriteTimeout, got.ReadTimeout, got.WriteTimeout, got.ContextTimeoutEnabled)
			}
			if before.ContextTimeoutEnabled || (got.ReadTimeout == time.Hour) != (before.ReadTimeout == time.Hour) {
				t.Errorf("the original client changed: %+v", before)
			}
			if err := rdb.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A hookCounter counts the commands that pass through it.
type hookCounter struct{ singles, pipelines atomic.Int32 }

func (h *hookCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hookCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") { // not those that greet on a new connection
			h.singles.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (h *hookCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.pipelines.Add(1)
		return next(ctx, cmds)
	}
}

// The hooks of the user's client see every command once, however many batchers share the client and
// whatever its timeouts are.
func TestBounded_Hooks(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).ClientWith(t, func(o *redis.Options) { o.ReadTimeout = time.Hour })
	hooks := new(hookCounter)
	rdb.AddHook(hooks)
	for range 3 {
		hooks.singles.Store(0)
		b := New(Config{Redis: one(rdb), Timeout: timeout})
		for range 2 { // the first also sends the script
			if r := b.stay(newCall("k")); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if n := hooks.singles.Load(); n != 2 && n != 3 {
			t.Errorf("the hook saw %d commands, want 2, or 3 with a script", n)
		}
		b.Close()
	}
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}

	b := New(Config{Redis: one(rdb), Timeout: timeout})
	t.Cleanup(b.Close)
	var calls []*Call
	for hooks.pipelines.Load() == 0 {
		for range 50 {
			calls = append(calls, newCall("k"))
			b.Send(calls[len(calls)-1], time.Now())
		}
		for _, c := range calls {
			if r := <-c.Reply; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		calls = calls[:0]
	}
}

// The list of bound clients does not keep clients alive, nor entries of collected ones.
func TestBounded_ClientsAreForgotten(t *testing.T) {
	t.Parallel()
	keys := func() (keys []any) {
		single, cluster := redis.NewClient(&redis.Options{}), redis.NewClusterClient(&redis.ClusterOptions{})
		bind(single)
		bindCluster(cluster)
		for _, rdb := range []redis.UniversalClient{single, cluster} {
			if err := rdb.Close(); err != nil {
				t.Error(err)
			}
		}
		return []any{weak.Make(single), weak.Make(cluster)}
	}()
	known := func() bool {
		bound.Lock()
		defer bound.Unlock()
		_, single := bound.clients[keys[0]]
		_, cluster := bound.clients[keys[1]]
		return single || cluster
	}
	if !known() {
		t.Fatal("the clients are not listed as bound")
	}
	for deadline := time.Now().Add(time.Minute); known(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a collected client is still listed as bound")
		}
		runtime.GC()
	}
}

// One timeout covers all of a command: the wait for a connection and the wait for the reply.
func TestBounded_LateConnection(t *testing.T) {
	t.Parallel()
	proxy := redistest.Start(t).Proxy(t)
	rdb := proxy.ClientWith(t, func(o *redis.Options) { o.ReadTimeout, o.PoolSize = time.Hour, 1 })
	const timeout = 4 * time.Second
	b := New(Config{Redis: one(rdb), Timeout: timeout})
	t.Cleanup(b.Close)
	busy := proxy.On("GET", 1, redistest.HoldReply)
	got := make(chan error, 1)
	go func() { got <- rdb.Get(t.Context(), "k").Err() }()
	<-busy.Hit()
	proxy.OnEvery(func(args []string) bool { return args[0] == "EVALSHA" }, redistest.DropReply)

	began := time.Now()
	time.AfterFunc(timeout*9/10, busy.Release)
	c := newCall("staying")
	c.Deadline = began.Add(timeout)
	r, _ := b.Do(c, began, Until{})
	if took := time.Since(began); r.Err != ErrUnanswered || took > timeout*7/4 {
		t.Errorf("got %v, %v after %v; want %v after %v", r.Value, r.Err, took, ErrUnanswered, timeout)
	}
	if err := <-got; err != redis.Nil {
		t.Error(err)
	}
}
