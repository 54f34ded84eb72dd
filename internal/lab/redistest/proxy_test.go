package redistest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// bothProtocols runs a test with RESP2 and RESP3, each with its own server and proxy.
func bothProtocols(t *testing.T, test func(t *testing.T, s *Server, p *Proxy, protocol int)) {
	t.Helper()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			test(t, s, s.Proxy(t), protocol)
		})
	}
}

func TestProxyIsTransparent(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		c := p.ClientWith(t, func(o *redis.Options) { once(o); o.Protocol = protocol })
		ctx := t.Context()
		big := strings.Repeat("0123456789abcdef", 1<<16)
		set(t, c, "big", big)
		if got, err := c.Get(ctx, "big").Result(); err != nil || got != big {
			t.Fatalf("1 MiB came back as %d bytes, %v", len(got), err)
		}
		wantValue(t, c, "nothing", "")
		c.HSet(ctx, "h", "a", "1", "b", "2")
		if got := c.HGetAll(ctx, "h").Val(); len(got) != 2 || got["b"] != "2" {
			t.Errorf("HGETALL: %v", got)
		}
		c.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"})
		if got := c.ZScore(ctx, "z", "m").Val(); got != 1.5 {
			t.Errorf("ZSCORE: %v", got)
		}
		if got := c.Eval(ctx, "return {1, {'a', false}, {}}", nil).Val(); fmt.Sprint(got) != "[1 [a <nil>] []]" {
			t.Errorf("EVAL: %v", got)
		}
		if err := c.Eval(ctx, "return redis.error_reply('MY error')", nil).Err(); err == nil || err.Error() != "MY error" {
			t.Errorf("EVAL of an error: %v", err)
		}
		cmds, err := c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Incr(ctx, "n")
			tx.Get(ctx, "big")
			return nil
		})
		if err != nil || cmds[0].(*redis.IntCmd).Val() != 1 || cmds[1].(*redis.StringCmd).Val() != big {
			t.Errorf("MULTI: %v", err)
		}
		wantValue(t, s.Client(t), "n", "1") // it was this server
	})
}

func TestProxyPipeline(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, _ *Server, p *Proxy, protocol int) {
		c := p.ClientWith(t, func(o *redis.Options) { once(o); o.Protocol = protocol })
		const n = 2000
		cmds, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for range n {
				pipe.Incr(t.Context(), "n")
			}
			return nil
		})
		if err != nil || len(cmds) != n {
			t.Fatal(err)
		}
		for i, cmd := range cmds {
			if got := cmd.(*redis.IntCmd).Val(); got != int64(i+1) {
				t.Fatalf("reply %d is %d", i, got)
			}
		}
		if got := p.Count("incr"); got != n {
			t.Errorf("Count: %d, want %d", got, n)
		}
	})
}

func TestProxyManyClients(t *testing.T) {
	t.Parallel()
	p := Start(t).Proxy(t)
	c := p.ClientWith(t, func(o *redis.Options) { o.PoolSize = 20 })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				if err := c.Incr(t.Context(), "n").Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantValue(t, c, "n", "1000")
	if got := p.Count("INCR"); got != 1000 {
		t.Errorf("Count: %d", got)
	}
}

// Each action on one command of a go-redis client.
func TestActions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do       Action
		err      string // part of the client's error; "": it gets the reply
		executed bool
	}{
		"DropReply": {DropReply, "i/o timeout", true},
		"CutBefore": {CutBefore, "EOF", false},
		"CutAfter":  {CutAfter, "EOF", true},
		"ReplyWith": {ReplyWith("-TRYAGAIN busy\r\n"), "TRYAGAIN busy", false},
		"Delay":     {Delay(time.Millisecond), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
				direct := s.Client(t)
				c := p.ClientWith(t, func(o *redis.Options) { once(o); o.Protocol, o.ReadTimeout = protocol, patience })
				second := c
				if test.do.kind == dropReply {
					second = c.WithTimeout(100 * time.Millisecond) // on the same connections
				}
				set(t, c, "n", "0")
				rule := p.On("eval", 2, test.do)
				incr := func(c *redis.Client) error {
					return c.Eval(t.Context(), "return redis.call('INCR', 'n')", nil).Err()
				}
				if err := incr(c); err != nil {
					t.Fatalf("the first: %v", err)
				}
				if isClosed(rule.Hit()) {
					t.Fatal("Hit before the second")
				}
				if err := incr(second); err == nil && test.err != "" || err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)) {
					t.Fatalf("the second: %v, want %q", err, test.err)
				}
				await(t, "Hit", rule.Hit())
				want := "1"
				if test.executed {
					want = "2"
				}
				wantValue(t, direct, "n", want)
				if err := incr(c); err != nil {
					t.Fatalf("the third: %v", err)
				}
			})
		})
	}
}

// Each action on the second of four commands of a pipeline.
func TestActionsInAPipeline(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do    Action
		want  []string
		then  func(*wire)
		value string
	}{
		"DropReply":       {DropReply, []string{":1\r\n"}, (*wire).wantSilence, "4"},
		"CutBefore":       {CutBefore, []string{":1\r\n"}, (*wire).wantEnd, "1"},
		"CutAfter":        {CutAfter, []string{":1\r\n"}, (*wire).wantEnd, "2"},
		"ReplyWith":       {ReplyWith("$2\r\nhi\r\n"), []string{":1\r\n", "$2\r\nhi\r\n", ":2\r\n", ":3\r\n"}, (*wire).wantSilence, "3"},
		"ReplyWith twice": {ReplyWith("+a\r\n+b\r\n"), []string{":1\r\n", "+a\r\n", "+b\r\n", ":2\r\n", ":3\r\n"}, (*wire).wantSilence, "3"},
		"Delay":           {Delay(20 * time.Millisecond), []string{":1\r\n", ":2\r\n", ":3\r\n", ":4\r\n"}, (*wire).wantSilence, "4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
				w := dial(t, p.Addr(), protocol)
				rule := p.On("INCR", 2, test.do)
				w.send("INCR n", "INCR n", "INCR n", "INCR n")
				w.want(test.want...)
				await(t, "Hit", rule.Hit())
				test.then(w)
				c := s.Client(t)
				wantValue(t, c, "n", test.value)
			})
		})
	}
}

func TestHoldRequest(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		w, direct := dial(t, p.Addr(), protocol), s.Client(t)
		rule := p.On("INCR", 2, HoldRequest)
		w.send("INCR n", "INCR n", "GET n")
		w.want(":1\r\n")
		await(t, "Hit", rule.Hit())
		w.wantSilence()
		wantValue(t, direct, "n", "1")
		if isClosed(rule.Done()) {
			t.Fatal("Done before Release")
		}
		rule.Release()
		rule.Release()
		await(t, "Done", rule.Done())
		wantValue(t, direct, "n", "2")
		w.want(":2\r\n", "$1\r\n2\r\n")
	})
}

// A held command arrives late, as a stray, even if its client is gone.
func TestHoldRequestOutlivesItsClient(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*wire, *Proxy){
		"the client hangs up":    func(w *wire, _ *Proxy) { w.hangUp() },
		"cut":                    func(w *wire, p *Proxy) { p.Cut(); w.wantEnd() },
		"cut and restored":       func(w *wire, p *Proxy) { p.Cut(); p.Restore(); w.wantEnd() },
		"stalled, cut, restored": func(w *wire, p *Proxy) { p.Stall(); p.Cut(); p.Restore(); w.wantEnd() },
		"stalled and restored":   func(_ *wire, p *Proxy) { p.Stall(); p.Restore() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
				w, direct := dial(t, p.Addr(), protocol), s.Client(t)
				rule := p.On("SET", 1, HoldRequest)
				w.send("SET k late")
				await(t, "Hit", rule.Hit())
				leave(w, p)
				set(t, direct, "k", "early")
				rule.Release()
				await(t, "Done", rule.Done())
				wantValue(t, direct, "k", "late")
			})
		})
	}
}

// Redis drops an unread command of a client that has hung up. These commands must run all the same.
func TestPausedCommandOfAClientThatHasLeft(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]Action{"HoldRequest": HoldRequest, "CutAfter": CutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			p, direct := s.Proxy(t), s.Client(t)
			w := dial(t, p.Addr(), 2)
			rule := p.On("SET", 1, do)
			s.PauseClients(t, 300*time.Millisecond)
			w.send("SET k late")
			rule.Release()
			eventually(t, "the command at the proxy", func() bool { return p.Count("SET") == 1 })
			w.hangUp()
			await(t, "Hit", rule.Hit())
			if do.kind == holdRequest {
				await(t, "Done", rule.Done())
			}
			eventually(t, "the command to be executed", func() bool { return direct.Get(t.Context(), "k").Val() == "late" })
		})
	}
}

// Commands behind a held one are lost when Cut is called, unless they are held too.
func TestCutKeepsOnlyWhatIsHeld(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p, direct := s.Proxy(t), s.Client(t)
	first, third := p.On("INCR", 1, HoldRequest), p.On("INCR", 3, HoldRequest)
	w := dial(t, p.Addr(), 2)
	w.send("INCR a", "INCR b", "INCR c")
	await(t, "Hit", third.Hit())
	p.Cut()
	third.Release()
	first.Release()
	await(t, "first", first.Done())
	await(t, "third", third.Done())
	for key, want := range map[string]string{"a": "1", "b": "", "c": "1"} {
		wantValue(t, direct, key, want)
	}
}

func TestHoldRequestOfADeadServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := s.Proxy(t)
	w := dial(t, p.Addr(), 2)
	rule := p.On("INCR", 1, HoldRequest)
	w.send("INCR n")
	await(t, "Hit", rule.Hit())
	s.Kill(t)
	w.wantEnd()
	wantNoLinks(t, p)
	s.Restart(t)
	rule.Release()
	again := dial(t, p.Addr(), 2)
	again.send("INCR n")
	again.want(":1\r\n") // the held one went down with its connection
	if isClosed(rule.Done()) {
		t.Error("Done, though Redis has never answered it")
	}
}

func TestHoldReply(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		w, direct := dial(t, p.Addr(), protocol), s.Client(t)
		rule := p.On("INCR", 2, HoldReply)
		w.send("INCR n", "INCR n", "GET n")
		w.want(":1\r\n")
		await(t, "Hit", rule.Hit())
		w.wantSilence()
		eventually(t, "the command to be executed", func() bool { return direct.Get(t.Context(), "n").Val() == "2" })
		rule.Release()
		w.want(":2\r\n", "$1\r\n2\r\n")
	})
}

// Whatever waits for a client ends with it.
func TestReplyOfAClientThatHasLeft(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]Action{"HoldReply": HoldReply, "Delay": Delay(time.Hour)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Start(t).Proxy(t)
			w := dial(t, p.Addr(), 2)
			rule := p.On("INCR", 1, do)
			w.send("INCR n")
			await(t, "Hit", rule.Hit())
			w.hangUp()
			wantNoLinks(t, p)
		})
	}
}

func wantNoLinks(t *testing.T, p *Proxy) {
	t.Helper()
	eventually(t, "all links to end", func() bool { return len(p.all()) == 0 })
}

func TestReleaseBeforeHit(t *testing.T) {
	t.Parallel()
	p := Start(t).Proxy(t)
	w := dial(t, p.Addr(), 2)
	request, reply := p.On("INCR", 1, HoldRequest), p.On("INCR", 2, HoldReply)
	request.Release()
	reply.Release()
	w.send("INCR n", "INCR n")
	w.want(":1\r\n", ":2\r\n")
	await(t, "Hit of the request", request.Hit())
	await(t, "Hit of the reply", reply.Hit())
	await(t, "Done", request.Done())
}

func TestDelay(t *testing.T) {
	t.Parallel()
	p := Start(t).Proxy(t)
	w := dial(t, p.Addr(), 3)
	const d = 200 * time.Millisecond
	p.On("INCR", 1, Delay(d))
	start := time.Now()
	w.send("INCR n", "INCR n")
	w.want(":1\r\n")
	if took := time.Since(start); took < d {
		t.Errorf("the reply took %v, want at least %v", took, d)
	}
	w.want(":2\r\n")
}

func TestRulesCountForThemselves(t *testing.T) {
	t.Parallel()
	p := Start(t).Proxy(t)
	c := p.ClientWith(t, once)
	ctx := t.Context()
	set(t, c, "k", "v")
	p.On("GET", 1, ReplyWith("$3\r\none\r\n"))
	p.On("", 2, ReplyWith("$3\r\ntwo\r\n"))
	p.OnMatch(1, func(args []string) bool { return args[len(args)-1] == "other" }, ReplyWith("$5\r\nother\r\n"))
	every := p.OnEvery(func(args []string) bool { return args[0] == "echo" }, ReplyWith("$5\r\nevery\r\n"))
	removed := p.On("GET", 3, ReplyWith("$7\r\nremoved\r\n"))
	removed.Remove()
	for _, want := range []struct{ key, value string }{
		{"k", "one"}, {"k", "two"}, {"k", "v"}, {"other", "other"}, {"other", ""},
	} {
		wantValue(t, c, want.key, want.value)
	}
	for range 3 {
		if got := c.Echo(ctx, "x").Val(); got != "every" {
			t.Errorf("ECHO: %q", got)
		}
	}
	every.Remove()
	if got := c.Echo(ctx, "x").Val(); got != "x" {
		t.Errorf("ECHO without the rule: %q", got)
	}
	if isClosed(removed.Hit()) {
		t.Error("a removed rule took hold")
	}
}

func TestSeveralRulesForOneCommand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   []Action
		want []string
		then func(*wire)
		n    string
	}{
		"CutBefore first of all":   {[]Action{HoldRequest, HoldReply, ReplyWith("+x\r\n"), CutBefore}, nil, (*wire).wantEnd, ""},
		"ReplyWith before holding": {[]Action{HoldRequest, DropReply, ReplyWith("+x\r\n")}, []string{"+x\r\n"}, (*wire).wantSilence, ""},
		"DropReply and CutAfter":   {[]Action{DropReply, CutAfter}, nil, (*wire).wantEnd, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			p := s.Proxy(t)
			for _, do := range test.do {
				p.On("INCR", 1, do)
			}
			w := dial(t, p.Addr(), 2)
			w.send("INCR n")
			w.want(test.want...)
			test.then(w)
			wantValue(t, s.Client(t), "n", test.n)
		})
	}
}

// A command can be delayed in both directions.
func TestHoldRequestAndReply(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p, direct := s.Proxy(t), s.Client(t)
	w := dial(t, p.Addr(), 2)
	request, reply := p.On("INCR", 1, HoldRequest), p.On("INCR", 1, HoldReply)
	w.send("INCR n")
	await(t, "Hit of the request", request.Hit())
	if isClosed(reply.Hit()) {
		t.Fatal("Hit of the reply before there is one")
	}
	request.Release()
	await(t, "Hit of the reply", reply.Hit())
	await(t, "Done", request.Done())
	wantValue(t, direct, "n", "1")
	w.wantSilence()
	reply.Release()
	w.want(":1\r\n")
}

func TestHoldEvery(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p, direct := s.Proxy(t), s.Client(t)
	rule := p.OnEvery(func(args []string) bool { return args[0] == "INCR" }, HoldRequest)
	a, b := dial(t, p.Addr(), 2), dial(t, p.Addr(), 3)
	a.send("INCR n", "INCR n")
	b.send("INCR n")
	eventually(t, "all commands", func() bool { return p.Count("INCR") == 3 })
	wantValue(t, direct, "n", "")
	rule.Remove()
	rule.Release()
	await(t, "Done", rule.Done())
	wantValue(t, direct, "n", "3")
}

func TestHangUpEndsABlockedCommand(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p, direct := s.Proxy(t), s.Client(t)
	w := dial(t, p.Addr(), 2)
	w.send("BLPOP list 0")
	blocked := func(want string) func() bool {
		return func() bool {
			return strings.Contains(direct.Info(t.Context(), "clients").Val(), "blocked_clients:"+want)
		}
	}
	eventually(t, "Redis to block the client", blocked("1"))
	w.hangUp()
	eventually(t, "Redis to drop the client", blocked("0"))
}

func TestRedisEndsAConnection(t *testing.T) {
	t.Parallel()
	s := Start(t, "maxclients 2")
	p := s.Proxy(t)
	w := dial(t, p.Addr(), 2)
	w.send("PING", "QUIT")
	w.want("+PONG\r\n", "+OK\r\n")
	w.wantEnd()
	keep := []*wire{dial(t, p.Addr(), 2), dial(t, p.Addr(), 2)}
	for _, w := range keep {
		w.send("PING")
		w.want("+PONG\r\n")
	}
	dial(t, p.Addr(), 2).want("-ERR max number of clients reached\r\n")
}

func TestProxyOfADeadServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := s.Proxy(t)
	c := p.ClientWith(t, once)
	set(t, c, "k", "v")
	s.Save(t)
	s.Kill(t)
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a dead server answers")
	}
	dial(t, p.Addr(), 2).wantEnd()
	s.Restart(t)
	wantValue(t, p.Client(t), "k", "v")
}

func TestProxyOfAFrozenServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := s.Proxy(t)
	s.Freeze(t)
	w := dial(t, p.Addr(), 2)
	w.send("INCR n")
	w.wantSilence()
	s.Thaw(t)
	w.want(":1\r\n")
}

func TestCut(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		old := []*wire{dial(t, p.Addr(), protocol), dial(t, p.Addr(), protocol)}
		old[0].send("SUBSCRIBE c")
		old[0].read()
		held := p.On("INCR", 1, HoldReply)
		old[1].send("INCR n")
		await(t, "Hit", held.Hit())
		p.Cut()
		for _, w := range old {
			w.wantEnd()
		}
		refused, err := net.Dial("tcp4", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer refused.Close()
		(&wire{t: t, conn: refused, in: newRESPReader(refused)}).wantEnd()
		if err := p.ClientWith(t, once).Ping(t.Context()).Err(); err == nil {
			t.Fatal("PING was answered through a cut")
		}
		eventually(t, "Redis to see its connections end", func() bool {
			return len(strings.Split(strings.TrimSpace(s.Client(t).ClientList(t.Context()).Val()), "\n")) == 1
		})
		p.Restore()
		w := dial(t, p.Addr(), protocol)
		w.send("INCR n")
		w.want(":2\r\n")
	})
}

func TestStall(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		direct := s.Client(t)
		w, sub := dial(t, p.Addr(), protocol), dial(t, p.Addr(), protocol)
		sub.send("SUBSCRIBE c")
		confirmation := sub.read()
		seen := p.Count("")
		p.Stall()
		w.send("INCR n")
		fresh := dial(t, p.Addr(), 2)
		fresh.send("INCR n")
		if err := direct.Publish(t.Context(), "c", "hello").Err(); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*wire{w, fresh, sub} {
			w.wantSilence()
		}
		wantValue(t, direct, "n", "")
		if got := p.Count(""); got != seen {
			t.Errorf("%d commands have arrived during the stall", got-seen)
		}
		p.Restore()
		a, b := w.read(), fresh.read()
		if got := string(a.raw) + string(b.raw); got != ":1\r\n:2\r\n" && got != ":2\r\n:1\r\n" {
			t.Errorf("got %q", got)
		}
		sub.want(string(confirmation.raw[0]) + "3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n")
	})
}

// Open connections stop forwarding; new ones work.
func TestMute(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		direct := s.Client(t)
		w, sub := dial(t, p.Addr(), protocol), dial(t, p.Addr(), protocol)
		sub.send("SUBSCRIBE c")
		sub.read()
		held := p.On("INCR", 1, HoldReply)
		w.send("INCR n")
		await(t, "Hit", held.Hit())
		p.Mute()
		held.Release()
		w.send("INCR n")
		fresh := dial(t, p.Addr(), protocol)
		fresh.send("INCR n")
		fresh.want(":2\r\n")
		if n := direct.Publish(t.Context(), "c", "hello"); n.Err() != nil || n.Val() != 1 {
			t.Fatal(n)
		}
		for _, w := range []*wire{w, sub} {
			w.wantSilence()
		}
		wantValue(t, direct, "n", "2")
		w.hangUp()
		sub.hangUp()
		fresh.send("INCR n")
		fresh.want(":3\r\n")
	})
}

// Stall interrupts a blocked write, and Restore continues where it stopped.
func TestStallInTheMiddleOfAWrite(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := s.Proxy(t)
	big := strings.Repeat("x", 64<<20)
	s.Freeze(t)
	w := dial(t, p.Addr(), 2)
	go func() { _, _ = w.conn.Write(encode("SET", "k", big)) }()
	eventually(t, "the command at the proxy", func() bool { return p.Count("SET") == 1 })
	for range 2 {
		writing := 0 // polls in a row; a step that is no blocked write does not last
		eventually(t, "the write to block", func() bool {
			p.gate.mu.Lock()
			defer p.gate.mu.Unlock()
			if writing++; p.gate.inside == 0 {
				writing = 0
			}
			return writing > 20
		})
		p.Stall()
		p.Restore()
	}
	p.Stall()
	s.Thaw(t)
	w.wantSilence()
	p.Restore()
	w.want("+OK\r\n")
	wantValue(t, s.ClientWith(t, func(o *redis.Options) { o.ReadTimeout = patience }), "k", big)
}

func TestStallAndCutTakeTurns(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := s.Proxy(t)
	p.Cut()
	p.Stall() // accepts again
	w := dial(t, p.Addr(), 2)
	w.send("INCR n")
	w.wantSilence()
	p.Stall()
	p.Cut()
	p.Cut()
	w.wantEnd()
	p.Restore()
	p.Restore()
	w = dial(t, p.Addr(), 2)
	w.send("INCR n")
	w.want(":1\r\n") // the stalled one was lost with its connection
	if got := p.Count("INCR"); got != 1 {
		t.Errorf("%d INCR have arrived, want 1", got)
	}
}

// A connection that was accepted before a Cut and is registered after it, even after Restore, must
// not live.
func TestCutMeetsAConnectionInTheMaking(t *testing.T) {
	t.Parallel()
	p := Start(t).Proxy(t)
	cuts, _ := p.state()
	p.Cut()
	p.Restore()
	if p.register(&link{}, cuts) {
		t.Error("it lives")
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	p := Start(t).Proxy(t)
	if got := p.Commands(); len(got) != 0 {
		t.Errorf("Commands before the first: %q", got)
	}
	w := dial(t, p.Addr(), 2)
	w.send("set a 1", "GET a", "get a")
	w.want("+OK\r\n", "$1\r\n1\r\n", "$1\r\n1\r\n")
	if got := p.Commands(); !slices.Equal(got, []string{"SET", "GET", "GET"}) {
		t.Errorf("Commands: %q", got)
	}
	for cmd, want := range map[string]int{"": 3, "GET": 2, "get": 2, "SET": 1, "DEL": 0} {
		if got := p.Count(cmd); got != want {
			t.Errorf("Count(%q) is %d, want %d", cmd, got, want)
		}
	}
}

func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	j := newJournal()
	const n = 2*journalLength + 17
	for i := range n {
		j.note(fmt.Sprint(i))
	}
	last := j.last()
	if len(last) != journalLength || last[0] != fmt.Sprint(n-journalLength) || last[journalLength-1] != fmt.Sprint(n-1) {
		t.Errorf("%d names, from %s to %s", len(last), last[0], last[len(last)-1])
	}
	if j.count("") != n {
		t.Errorf("count is %d", j.count(""))
	}
}

// Close ends everything in progress. goleak checks that nothing is left.
func TestClose(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*testing.T, *Server, *Proxy){
		"nothing":  func(*testing.T, *Server, *Proxy) {},
		"stalled":  func(_ *testing.T, _ *Server, p *Proxy) { p.Stall() },
		"cut":      func(_ *testing.T, _ *Server, p *Proxy) { p.Cut() },
		"frozen":   func(t *testing.T, s *Server, _ *Proxy) { s.Freeze(t) },
		"killed":   func(t *testing.T, s *Server, _ *Proxy) { s.Kill(t) },
		"closed":   func(_ *testing.T, _ *Server, p *Proxy) { p.Close() },
		"hang-ups": func(_ *testing.T, _ *Server, p *Proxy) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			p := s.Proxy(t)
			rules := []*Rule{p.On("INCR", 1, HoldRequest), p.On("INCR", 2, HoldReply), p.On("INCR", 3, Delay(time.Hour)), p.On("INCR", 4, DropReply)}
			var wires []*wire
			for range rules {
				w := dial(t, p.Addr(), 2)
				w.send("INCR n")
				wires = append(wires, w)
			}
			idle := dial(t, p.Addr(), 3)
			for _, r := range rules {
				await(t, "Hit", r.Hit())
			}
			if name == "hang-ups" {
				for _, w := range wires {
					w.hangUp()
				}
			}
			before(t, s, p)
			p.Close()
			if name != "hang-ups" {
				for _, w := range append(wires, idle) {
					w.wantEnd()
				}
			}
			// A process that is just being forked holds the socket for a moment.
			eventually(t, "the port to close", func() bool {
				conn, err := net.Dial("tcp4", p.Addr())
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			})
			for _, r := range rules { // a rule outlives its proxy
				r.Release()
				r.Remove()
			}
		})
	}
}

func TestBadOrders(t *testing.T) {
	t.Parallel()
	p := Start(t).Proxy(t)
	for want, order := range map[string]func(){
		"command number 0":           func() { p.On("GET", 0, DropReply) },
		"command number -1":          func() { p.OnMatch(-1, func([]string) bool { return true }, DropReply) },
		"zero Action":                func() { p.On("GET", 1, Action{}) },
		"without a match function":   func() { p.OnEvery(nil, DropReply) },
		"SwallowMessages(0)":         func() { p.SwallowMessages(0) },
		"Delay(0s)":                  func() { Delay(0) },
		`ReplyWith("")`:              func() { ReplyWith("") },
		`ReplyWith("nonsense")`:      func() { ReplyWith("nonsense") },
		`ReplyWith("+OK\n")`:         func() { ReplyWith("+OK\n") },
		`ReplyWith("$5\r\nab\r\n")`:  func() { ReplyWith("$5\r\nab\r\n") },
		`ReplyWith("+OK\r\n*1\r\n")`: func() { ReplyWith("+OK\r\n*1\r\n") },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "redistest: ") || !strings.Contains(got, want) {
					t.Errorf("panics with %q", got)
				}
			}()
			order()
		})
	}
}

func TestWhatTheProxyCannotFollow(t *testing.T) {
	t.Parallel()
	p := Start(t).Proxy(t)
	for _, cmd := range []string{"MONITOR", "sync", "PSYNC ? -1", "CLIENT REPLY OFF"} {
		w := dial(t, p.Addr(), 2)
		w.send("PING", cmd, "PING")
		w.want("+PONG\r\n")
		if f := w.read(); !strings.HasPrefix(string(f.raw), "-ERR redistest: the proxy cannot follow ") {
			t.Errorf("%s: %q", cmd, f.raw)
		}
		w.want("+PONG\r\n")
	}
	w := dial(t, p.Addr(), 2)
	w.send("PING")
	w.write("PING\r\n")
	w.want("+PONG\r\n")
	if f := w.read(); !strings.HasPrefix(string(f.raw), "-ERR redistest: protocol error: ") {
		t.Errorf("inline command: %q", f.raw)
	}
	w.wantEnd()
}

// A server that does not speak RESP fails the test.
func TestServerThatIsNoRedis(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("220 mail.example.com ESMTP\r\n"))
		_ = conn.Close()
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	fake := &fakeT{TB: t}
	p := newProxy(fake, listener.Addr().String())
	dial(t, p.Addr(), 2).wantEnd()
	p.Close()
	if got := fake.failed(); !strings.Contains(got, "cannot parse a reply of Redis") {
		t.Errorf("the test failed with %q", got)
	}
}
