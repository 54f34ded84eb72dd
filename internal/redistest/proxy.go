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

// Proxy stands between clients and one server. It is safe for concurrent use; see the package documentation.
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
	cuts     int // how often Cut was called: a connection accepted before must not outlive it
	closed   bool
}

// Proxy starts a proxy in front of the server. It is closed, and all its goroutines have ended, when the test ends. It
// stays usable over [Server.Kill] and [Server.Restart]: while the server is down, it closes every new connection.
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

// Addr is where clients connect, as 127.0.0.1:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Client is a new client with default options that connects to the proxy; it is closed when the test ends.
func (p *Proxy) Client(t testing.TB) *redis.Client {
	t.Helper()
	return newClient(t, p.Addr(), nil)
}

// ClientWith is Client with options that change has edited.
func (p *Proxy) ClientWith(t testing.TB, change func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, p.Addr(), change)
}

// On arms a rule for the n-th command from now (1: the next), over all connections, that has the name cmd in upper or
// lower case; "" is any command, those with which a client opens a connection (HELLO, CLIENT) included. Each rule counts
// for itself. On panics if n is less than 1.
func (p *Proxy) On(cmd string, n int, do Action) *Rule {
	return p.OnMatch(n, func(args []string) bool { return cmd == "" || strings.EqualFold(args[0], cmd) }, do)
}

// OnMatch is [Proxy.On] for commands that match accepts; args[0] is the name as the client wrote it. match is called for
// one command at a time and must neither arm nor remove rules.
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

// SwallowMessages loses the next n published messages (message, pmessage, smessage) towards any client; with n < 0 all
// until [Rule.Remove]. Confirmations of subscriptions pass. It panics if n is 0.
func (p *Proxy) SwallowMessages(n int) *Rule { return p.rules.onMessage(n) }

// Count is how many commands with this name have arrived so far, over all connections; "" counts all.
func (p *Proxy) Count(cmd string) int { return p.journal.count(cmd) }

// Commands are the names of the last 100,000 commands in order of arrival, in upper case.
func (p *Proxy) Commands() []string { return p.journal.last() }

// Cut closes every connection, and new ones as soon as they are accepted. Once it has returned, nothing more reaches Redis
// from before, except the commands that HoldRequest or CutAfter has picked.
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

// Stall keeps connections open, accepts new ones, and passes nothing on in either direction: a black hole. Once it has
// returned, no byte passes.
func (p *Proxy) Stall() {
	p.control.Lock()
	defer p.control.Unlock()
	p.refuse(false)
	p.shut()
}

// Mute makes a black hole of every connection that is open now: it stays open, and nothing passes on it any more in either
// direction, as when a firewall has forgotten it. New connections work. Once it has returned, no byte passes on the old ones,
// except of the commands that HoldRequest or CutAfter has picked.
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

// Restore ends Cut or Stall. What was stalled is delivered.
func (p *Proxy) Restore() {
	p.control.Lock()
	defer p.control.Unlock()
	p.refuse(false)
	p.open()
}

// Close ends everything, held commands and replies included, and waits for it. The test's cleanup calls it as well.
func (p *Proxy) Close() {
	p.control.Lock()
	defer p.control.Unlock()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.gate.close() // first: what no longer waits from here on must not get through
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
				p.t.Errorf("redistest: the proxy cannot accept connections any more: %v", err)
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

// register lets a link live, unless Cut or Close has been called since its client was accepted.
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
