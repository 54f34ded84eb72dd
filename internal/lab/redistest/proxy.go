package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Proxy forwards connections to one server. It is safe for concurrent use; see the package
// documentation.
type Proxy struct {
	t        testing.TB
	upstream string
	listener net.Listener
	gate     *gate
	rules    ruleBook
	journal  *journal

	closing context.Context
	close   context.CancelFunc
	wg      sync.WaitGroup // the accept loop and one goroutine for each accepted connection

	control sync.Mutex // one Cut, Stall, Mute, Restore or Close at a time

	mu       sync.Mutex
	links    map[*link]struct{}
	refusing bool
	cuts     int // number of Cuts, which must close connections accepted before
	closed   bool
}

// Proxy starts a proxy in front of the server and closes it when the test ends. It survives
// [Server.Kill] and [Server.Restart]: while the server is down, it closes every new connection.
func (s *Server) Proxy(t testing.TB) *Proxy {
	t.Helper()
	p := newProxy(t, s.Addr())
	t.Cleanup(p.Close)
	return p
}

func newProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: cannot start a proxy: %v", err)
	}
	p := &Proxy{
		t: t, upstream: upstream, listener: listener,
		gate: newGate(), journal: newJournal(), links: make(map[*link]struct{}),
	}
	p.closing, p.close = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p
}

// Addr returns the address for clients, as 127.0.0.1:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Client returns a new client with default options that connects to the proxy; it is closed when
// the test ends.
func (p *Proxy) Client(t testing.TB) *redis.Client {
	t.Helper()
	return newClient(t, p.Addr(), nil)
}

// ClientWith is Client with options that change has edited.
func (p *Proxy) ClientWith(t testing.TB, change func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, p.Addr(), change)
}

// On arms a rule for the n-th command from now (1: the next) with the name cmd in any case, over
// all connections. "" means any command, including those with which a client opens a connection
// (HELLO, CLIENT). Each rule counts separately. On panics if n is less than 1.
func (p *Proxy) On(cmd string, n int, do Action) *Rule {
	return p.OnMatch(n, func(args []string) bool { return cmd == "" || strings.EqualFold(args[0], cmd) }, do)
}

// OnMatch is [Proxy.On] for commands that match accepts. args[0] is the name as the client wrote
// it. match is called for one command at a time and must not arm or remove rules.
func (p *Proxy) OnMatch(n int, match func(args []string) bool, do Action) *Rule {
	if n < 1 {
		panic(fmt.Sprintf("redistest: a rule for command number %d: the next one is number 1", n))
	}
	return p.rules.onCommand(match, n, do)
}

// OnEvery arms a rule for every command that match accepts, until it is removed.
func (p *Proxy) OnEvery(match func(args []string) bool, do Action) *Rule {
	return p.rules.onCommand(match, -1, do)
}

// SwallowMessages drops the next n published messages (message, pmessage, smessage) to any client,
// or with n < 0 all until [Rule.Remove]. It does not drop confirmations of subscriptions. It panics
// if n is 0.
func (p *Proxy) SwallowMessages(n int) *Rule { return p.rules.onMessage(n) }

// Count returns how many commands with this name have arrived so far, over all connections; ""
// counts all.
func (p *Proxy) Count(cmd string) int { return p.journal.count(cmd) }

// Commands returns the names of the last 100,000 commands in order of arrival, in upper case.
func (p *Proxy) Commands() []string { return p.journal.last() }

// Cut closes every connection, and new ones as soon as they are accepted. After it returns, no
// earlier command reaches Redis, except those that HoldRequest or CutAfter has picked.
func (p *Proxy) Cut() {
	p.control.Lock()
	defer p.control.Unlock()
	p.mu.Lock()
	p.refusing = true
	p.cuts++
	p.mu.Unlock()
	p.shut()
	for _, l := range p.all() {
		l.sever()
	}
	p.open()
}

// Stall keeps connections open and accepts new ones, but forwards nothing in either direction.
// After it returns, no byte passes.
func (p *Proxy) Stall() {
	p.control.Lock()
	defer p.control.Unlock()
	p.refuse(false)
	p.shut()
}

// Mute keeps the current connections open but forwards nothing on them, as when a firewall drops
// its state. New connections work. After it returns, no byte passes on the old ones, except for
// commands that HoldRequest or CutAfter has picked.
func (p *Proxy) Mute() {
	p.control.Lock()
	defer p.control.Unlock()
	p.refuse(false)
	p.shut()
	for _, l := range p.all() {
		l.mute()
	}
	p.open()
}

// Restore ends Cut or Stall. Stalled bytes are delivered.
func (p *Proxy) Restore() {
	p.control.Lock()
	defer p.control.Unlock()
	p.refuse(false)
	p.open()
}

// Close ends all connections, including held commands and replies, and waits for them. The test's
// cleanup calls it too.
func (p *Proxy) Close() {
	p.control.Lock()
	defer p.control.Unlock()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.gate.close() // first, so that steps released below cannot pass
	p.close()
	_ = p.listener.Close()
	for _, l := range p.all() {
		l.end()
	}
	p.wg.Wait()
}

func (p *Proxy) shut() {
	p.gate.shut(func() {
		for _, l := range p.all() {
			l.interrupt()
		}
	})
}

func (p *Proxy) open() {
	for _, l := range p.all() {
		l.resume()
	}
	p.gate.open()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if p.closing.Err() == nil {
				p.t.Errorf("redistest: the proxy cannot accept connections: %v", err)
			}
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve runs one accepted connection to its end.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	cuts, refusing := p.state()
	if refusing {
		return
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(p.closing, "tcp4", p.upstream)
	if err != nil {
		return // Redis is down: the client sees its connection end
	}
	defer server.Close()
	l := newLink(p, client, server)
	if p.register(l, cuts) {
		l.run()
		p.forget(l)
	}
}

func (p *Proxy) state() (cuts int, refusing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts, p.refusing
}

func (p *Proxy) refuse(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = yes
}

// register adds a link, unless Cut or Close was called since its client was accepted.
func (p *Proxy) register(l *link, cuts int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.cuts != cuts {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}
