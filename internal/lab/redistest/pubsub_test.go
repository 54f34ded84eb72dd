package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// event returns a frame of pub/sub as Redis sends it: a push in RESP3, an array in RESP2. A number
// is sent as one, "" as null.
func event(protocol int, elements ...any) string {
	kind, null := "*", "$-1\r\n"
	if protocol == 3 {
		kind, null = ">", "_\r\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d\r\n", kind, len(elements))
	for _, e := range elements {
		switch e := e.(type) {
		case int:
			fmt.Fprintf(&b, ":%d\r\n", e)
		case string:
			if e == "" {
				b.WriteString(null)
			} else {
				fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(e), e)
			}
		}
	}
	return b.String()
}

func publish(t *testing.T, c *redis.Client, channel, message string) {
	t.Helper()
	if n, err := c.Publish(t.Context(), channel, message).Result(); err != nil || n != 1 {
		t.Fatalf("PUBLISH %s: %d receivers, %v", channel, n, err)
	}
}

// Confirmations are matched to their commands. If one were miscounted, the wrong command would be
// cut off instead of the marked one.
func TestConfirmations(t *testing.T) {
	t.Parallel()
	type exchange struct {
		send string
		want func(protocol int) []string
	}
	events := func(all ...[]any) func(int) []string {
		return func(protocol int) (frames []string) {
			for _, e := range all {
				frames = append(frames, event(protocol, e...))
			}
			return frames
		}
	}
	reply := func(raw string) func(int) []string { return func(int) []string { return []string{raw} } }
	type list = []any
	for name, test := range map[string][]exchange{
		"one channel":    {{"SUBSCRIBE a", events(list{"subscribe", "a", 1})}},
		"three channels": {{"subscribe a b c", events(list{"subscribe", "a", 1}, list{"subscribe", "b", 2}, list{"subscribe", "c", 3})}},
		"the same twice": {{"SUBSCRIBE a a", events(list{"subscribe", "a", 1}, list{"subscribe", "a", 1})}},
		"patterns":       {{"PSUBSCRIBE a* b*", events(list{"psubscribe", "a*", 1}, list{"psubscribe", "b*", 2})}},
		"shards":         {{"SSUBSCRIBE a b", events(list{"ssubscribe", "a", 1}, list{"ssubscribe", "b", 2})}},
		"unsubscribe from nothing": {
			{"UNSUBSCRIBE", events(list{"unsubscribe", "", 0})},
			{"PUNSUBSCRIBE", events(list{"punsubscribe", "", 0})},
			{"SUNSUBSCRIBE", events(list{"sunsubscribe", "", 0})},
			{"UNSUBSCRIBE x y", events(list{"unsubscribe", "x", 0}, list{"unsubscribe", "y", 0})},
		},
		"unsubscribe from the last": {
			{"SUBSCRIBE a", events(list{"subscribe", "a", 1})},
			{"PSUBSCRIBE a", events(list{"psubscribe", "a", 2})},
			{"SSUBSCRIBE a", events(list{"ssubscribe", "a", 1})},
			{"UNSUBSCRIBE", events(list{"unsubscribe", "a", 1})},
			{"PUNSUBSCRIBE", events(list{"punsubscribe", "a", 0})},
			{"SUNSUBSCRIBE", events(list{"sunsubscribe", "a", 0})},
			{"UNSUBSCRIBE", events(list{"unsubscribe", "", 0})},
		},
		"unsubscribe from some": {
			{"SUBSCRIBE a b", events(list{"subscribe", "a", 1}, list{"subscribe", "b", 2})},
			{"UNSUBSCRIBE a c", events(list{"unsubscribe", "a", 1}, list{"unsubscribe", "c", 1})},
			{"UNSUBSCRIBE", events(list{"unsubscribe", "b", 0})},
		},
		"errors": {
			{"SUBSCRIBE", reply("-ERR wrong number of arguments for 'subscribe' command\r\n")},
			{"SUBSCRIBE a", events(list{"subscribe", "a", 1})},
			{"PSUBSCRIBE", reply("-ERR wrong number of arguments for 'psubscribe' command\r\n")},
		},
		"inside MULTI": {
			{"MULTI", reply("+OK\r\n")},
			{"SUBSCRIBE a b", reply("+QUEUED\r\n")},
			{"DISCARD", reply("+OK\r\n")},
		},
		"reset": {
			{"SUBSCRIBE a b", events(list{"subscribe", "a", 1}, list{"subscribe", "b", 2})},
			{"RESET", reply("+RESET\r\n")},
			{"UNSUBSCRIBE", func(int) []string { return []string{event(2, "unsubscribe", "", 0)} }},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothProtocols(t, func(t *testing.T, _ *Server, p *Proxy, protocol int) {
				w := dial(t, p.Addr(), protocol)
				var commands []string
				for _, e := range test {
					commands = append(commands, e.send)
				}
				rule := p.On("PING", 2, CutAfter)
				w.send(append(commands, "PING", "PING", "PING")...)
				for _, e := range test {
					w.want(e.want(protocol)...)
				}
				if f := w.read(); !strings.Contains(strings.ToUpper(string(f.raw)), "PONG") {
					t.Fatalf("got %q, want a PONG", f.raw)
				}
				await(t, "Hit", rule.Hit())
				w.wantEnd()
			})
		})
	}
}

func TestSwallowMessages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		n int
		// want has the messages among 1 to 4 that arrive.
		want []string
	}{
		"one": {1, []string{"2", "3", "4"}},
		"two": {2, []string{"3", "4"}},
		"all": {-1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
				w, direct := dial(t, p.Addr(), protocol), s.Client(t)
				rule := p.SwallowMessages(test.n)
				w.send("SUBSCRIBE a b")
				// Confirmations pass.
				w.want(event(protocol, "subscribe", "a", 1), event(protocol, "subscribe", "b", 2))
				if isClosed(rule.Hit()) {
					t.Fatal("Hit before a message")
				}
				for i := range 4 {
					publish(t, direct, "a", fmt.Sprint(i+1))
				}
				await(t, "Hit", rule.Hit())
				for _, m := range test.want {
					w.want(event(protocol, "message", "a", m))
				}
				w.send("UNSUBSCRIBE b") // its confirmation comes behind all messages
				w.want(event(protocol, "unsubscribe", "b", 1))
				rule.Remove()
				publish(t, direct, "a", "5")
				w.want(event(protocol, "message", "a", "5"))
			})
		})
	}
}

func TestSwallowEveryKindOfMessage(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		w, direct := dial(t, p.Addr(), protocol), s.Client(t)
		w.send("SUBSCRIBE a", "PSUBSCRIBE b*", "SSUBSCRIBE c")
		for range 3 {
			w.read()
		}
		send := func() {
			publish(t, direct, "a", "x")
			publish(t, direct, "bb", "x")
			if n, err := direct.SPublish(t.Context(), "c", "x").Result(); err != nil || n != 1 {
				t.Fatalf("SPUBLISH: %d receivers, %v", n, err)
			}
		}
		p.SwallowMessages(2)
		p.SwallowMessages(1) // begins when the first is used up
		send()
		send()
		w.want(event(protocol, "message", "a", "x"), event(protocol, "pmessage", "b*", "bb", "x"), event(protocol, "smessage", "c", "x"))
	})
}

func TestSwallowTowardsTheClientOfTheLibrary(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		direct := s.Client(t)
		c := p.ClientWith(t, func(o *redis.Options) { once(o); o.Protocol = protocol })
		sub := c.Subscribe(t.Context(), "a")
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		rule := p.SwallowMessages(1)
		publish(t, direct, "a", "lost")
		await(t, "Hit", rule.Hit())
		publish(t, direct, "a", "found")
		m, err := sub.ReceiveMessage(t.Context())
		if err != nil || m.Payload != "found" {
			t.Fatalf("%v, %v", m, err)
		}
	})
}

// A list that looks like a message is not one.
func TestRepliesThatLookLikeMessages(t *testing.T) {
	t.Parallel()
	const list = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n"
	bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
		w, direct := dial(t, p.Addr(), protocol), s.Client(t)
		direct.RPush(t.Context(), "list", "message", "a", "x")
		p.SwallowMessages(-1)
		w.send("LRANGE list 0 -1", "SUBSCRIBE a")
		w.want(list, event(protocol, "subscribe", "a", 1))
		if protocol == 3 { // only there a connection that is subscribed may send it
			w.send("LRANGE list 0 -1")
			w.want(list)
		}
		w.send("UNSUBSCRIBE a", "LRANGE list 0 -1")
		w.want(event(protocol, "unsubscribe", "a", 0), list)
	})
}

// No rule counts a message to a connection that DropReply has silenced: it is lost anyway.
func TestDeafConnectionsUseNoRule(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := s.Proxy(t)
	w, direct := dial(t, p.Addr(), 3), s.Client(t)
	dropped, last := p.On("INCR", 1, DropReply), p.On("INCR", 2, DropReply)
	swallow := p.SwallowMessages(1)
	w.send("SUBSCRIBE a", "INCR n")
	w.want(event(3, "subscribe", "a", 1))
	await(t, "Hit", dropped.Hit())
	publish(t, direct, "a", "x")
	w.send("INCR n")
	await(t, "the reply behind the message", last.Hit())
	if isClosed(swallow.Hit()) {
		t.Error("the rule took hold")
	}
	w.wantSilence()
}

// In RESP3 commands and messages share a connection.
func TestCommandsOnASubscribedConnection(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := s.Proxy(t)
	w, direct := dial(t, p.Addr(), 3), s.Client(t)
	w.send("SUBSCRIBE a b", "INCR n", "UNSUBSCRIBE", "INCR n", "SUBSCRIBE a")
	w.want(event(3, "subscribe", "a", 1), event(3, "subscribe", "b", 2), ":1\r\n")
	w.read() // Redis says in which order it unsubscribes
	w.read()
	w.want(":2\r\n", event(3, "subscribe", "a", 1))
	rule := p.On("INCR", 1, HoldReply)
	w.send("INCR n")
	await(t, "Hit", rule.Hit())
	publish(t, direct, "a", "x")
	w.wantSilence() // nothing overtakes a held reply
	rule.Release()
	w.want(":3\r\n", event(3, "message", "a", "x"))
	w.send("HELLO 2", "PING")
	w.read()
	w.want("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
}

// Other pushes pass.
func TestInvalidations(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := s.Proxy(t)
	w, direct := dial(t, p.Addr(), 3), s.Client(t)
	w.send("CLIENT TRACKING ON", "GET k", "GET k")
	w.want("+OK\r\n", "_\r\n", "_\r\n")
	p.SwallowMessages(-1)
	set(t, direct, "k", "v")
	w.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	w.send("GET k")
	w.want("$1\r\nv\r\n")

	rule := p.On("BLPOP", 1, HoldReply)
	w.send("BLPOP list 0")
	eventually(t, "the command to block", func() bool {
		return strings.Contains(direct.Info(t.Context(), "clients").Val(), "blocked_clients:1")
	})
	set(t, direct, "k", "w")
	w.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	if isClosed(rule.Hit()) {
		t.Error("a push was taken for the reply to BLPOP")
	}
}

func TestActionsOnSubscribe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do         Action
		then       func(*wire)
		subscribed int64
	}{
		"DropReply": {DropReply, (*wire).wantSilence, 1},
		"CutBefore": {CutBefore, (*wire).wantEnd, 0},
		"CutAfter":  {CutAfter, (*wire).wantEnd, 0},
		"HoldReply": {HoldReply, (*wire).wantSilence, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothProtocols(t, func(t *testing.T, s *Server, p *Proxy, protocol int) {
				w, direct := dial(t, p.Addr(), protocol), s.Client(t)
				rule := p.On("SUBSCRIBE", 1, test.do)
				w.send("SUBSCRIBE a b")
				await(t, "Hit", rule.Hit())
				test.then(w)
				eventually(t, fmt.Sprintf("%d subscribers", test.subscribed), func() bool {
					n, err := direct.Publish(t.Context(), "a", "x").Result()
					return err == nil && n == test.subscribed
				})
				test.then(w)
				if test.do.kind == holdReply {
					rule.Release()
					w.want(event(protocol, "subscribe", "a", 1), event(protocol, "subscribe", "b", 2), event(protocol, "message", "a", "x"))
				}
			})
		})
	}
}
