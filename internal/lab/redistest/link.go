package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// link is a client connection and its connection to Redis. When a reader sees its side end, it
// closes its queue. The writer behind that queue drains it and then closes the other side, which
// ends the other reader. So closing both connections ends everything.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	toServer       *queue[*call]
	toClient       *queue[delivery]
	clientGone     chan struct{} // closed when nothing more can come from the client
	serverGone     chan struct{} // closed when nothing more can come from Redis

	mu      sync.Mutex
	changed sync.Cond // signals changes of mustRun and redisDone
	pending []*call
	subs    subscriptions
	resp3   bool
	// deaf is true if a reply was dropped, so nothing more reaches the client.
	deaf bool
	// severed is true if Proxy.Cut or Mute was called. The link forwards only what must run, and
	// sends the client nothing.
	severed bool
	// mustRun counts the pending calls that Redis has to execute.
	mustRun int
	// redisDone is true if serverGone is closed.
	redisDone bool
}

func newLink(p *Proxy, client, server net.Conn) *link {
	l := &link{
		proxy: p, client: client, server: server,
		toServer: newQueue[*call](), toClient: newQueue[delivery](),
		clientGone: make(chan struct{}), serverGone: make(chan struct{}),
		subs: make(subscriptions),
	}
	l.changed.L = &l.mu
	return l
}

// run serves the link until both sides have ended.
func (l *link) run() {
	var wg sync.WaitGroup
	wg.Go(l.readRequests)
	wg.Go(l.writeRequests)
	wg.Go(l.readReplies)
	wg.Go(l.writeReplies)
	wg.Wait()
}

func (l *link) readRequests() {
	defer l.toServer.close()
	defer close(l.clientGone)
	in := newRESPReader(l.client)
	for {
		raw, args, err := in.request()
		if errors.Is(err, errProtocol) {
			l.refuse(err)
		}
		if err != nil || !l.arrive(args, raw) {
			break
		}
	}
	// Drop the rest, until the client hangs up.
	_, _ = io.Copy(io.Discard, in.in)
}

// refuse answers invalid RESP like Redis: with an error and the end of the connection.
func (l *link) refuse(err error) {
	l.enqueue(&call{own: true, ownReply: []byte("-ERR redistest: " + err.Error() + "\r\n")})
	l.enqueue(&call{own: true})
}

// arrive handles a command. It returns false if the connection ends with it.
func (l *link) arrive(args []string, raw []byte) bool {
	defer l.proxy.gate.leave()
	if !l.proxy.gate.enter() || l.isSevered() {
		return false
	}
	l.proxy.journal.note(args[0])
	c := newCall(args, raw, l.proxy.rules.take(args))
	c.arrived()
	l.enqueue(c)
	return !c.cuts()
}

func (l *link) enqueue(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, c)
	if c.mustRun() {
		l.mustRun++
	}
	if c.own {
		l.answerOwn()
	} else {
		l.toServer.push(c)
	}
}

func (l *link) writeRequests() {
	ok := true
	for {
		c, more := l.toServer.pop()
		if !more {
			break
		}
		for _, r := range c.all(holdRequest) {
			l.wait(r.released, l.serverGone)
		}
		ok = ok && l.send(l.server, c.raw, func() bool { return l.wants(c) })
	}
	l.awaitMustRun()
	// Half-close: Redis executes what was sent before it sees the end, and then closes the
	// connection, which closes the link.
	defer l.proxy.gate.leave()
	l.proxy.gate.enter()
	if tcp, is := l.server.(*net.TCPConn); is {
		_ = tcp.CloseWrite()
	}
}

// awaitMustRun waits until Redis has answered the calls that must run.
func (l *link) awaitMustRun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mustRun > 0 && !l.redisDone {
		l.changed.Wait()
	}
}

func (l *link) readReplies() {
	defer l.toClient.close()
	defer l.redisEnded()
	in := newRESPReader(l.server)
	for {
		f, err := in.reply()
		if errors.Is(err, errProtocol) {
			l.proxy.t.Errorf("redistest: the proxy cannot parse a reply of Redis: %v", err)
		}
		if err != nil {
			return
		}
		l.receive(f)
	}
}

func (l *link) redisEnded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.server.Close()
	l.redisDone = true
	close(l.serverGone)
	l.changed.Broadcast()
}

// receive dispatches a frame from Redis: a published message, a confirmation, another push, or a
// reply.
func (l *link) receive(f frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var head *call
	if len(l.pending) > 0 {
		head = l.pending[0]
	}
	kind := l.pubsubKind(f, head)
	_, confirms := confirmations[kind]
	switch {
	case messages[kind]:
		if !l.deaf && !l.proxy.rules.swallows() {
			l.deliver(delivery{raw: f.raw})
		}
	case confirms && head != nil && strings.EqualFold(head.name, kind):
		if head.replies == 0 {
			head.replies = l.subs.confirmationsOf(kind)
		}
		l.subs.note(kind, f.head(1))
		l.answer(head, f)
	case confirms:
		l.subs.note(kind, f.head(1))
		l.deliver(delivery{raw: f.raw})
	// Another push, or a final error such as "max number of clients reached".
	case f.kind == '>' || head == nil:
		l.deliver(delivery{raw: f.raw})
	default:
		head.replies = 1
		l.noteState(head, f)
		l.answer(head, f)
	}
}

// pubsubKind returns the kind of a confirmation or of a frame outside the order of replies, or ""
// for a plain reply. Pushes are always such frames. Arrays are only in RESP2 on a connection that
// is subscribed or about to be.
func (l *link) pubsubKind(f frame, head *call) string {
	if f.kind == '>' {
		return f.head(0)
	}
	if f.kind != '*' || l.resp3 {
		return ""
	}
	if l.subs.any() || head != nil && strings.EqualFold(head.name, f.head(0)) {
		return f.head(0)
	}
	return ""
}

// noteState tracks commands that change the connection's protocol.
func (l *link) noteState(head *call, f frame) {
	switch {
	case head.name == "HELLO" && f.kind != '-':
		l.resp3 = f.kind == '%'
	case head.name == "RESET" && f.kind == '+':
		l.resp3 = false
		clear(l.subs)
	}
}

// answer assigns a reply to the oldest pending command.
func (l *link) answer(head *call, f frame) {
	d := delivery{raw: f.raw}
	if !head.answered {
		head.answered = true
		var deaf bool
		d, deaf = head.executed(f.raw, time.Now())
		l.deaf = l.deaf || deaf
		if head.mustRun() {
			l.mustRun--
			l.changed.Broadcast()
		}
	}
	l.deliver(d)
	if head.replies--; head.replies == 0 {
		l.pending = l.pending[1:]
		l.answerOwn()
	}
}

// answerOwn sends the proxy's own answers that are next in order.
func (l *link) answerOwn() {
	for len(l.pending) > 0 && l.pending[0].own {
		l.deliver(delivery{raw: l.pending[0].ownReply, cut: l.pending[0].ownReply == nil})
		l.pending = l.pending[1:]
	}
}

func (l *link) deliver(d delivery) {
	if !l.deaf || d.cut {
		l.toClient.push(d)
	}
}

func (l *link) writeReplies() {
	ok := true
	for {
		d, more := l.toClient.pop()
		if !more {
			break
		}
		l.hold(d)
		if d.cut {
			l.hangUp()
		}
		ok = ok && l.send(l.client, d.raw, l.wantsReply)
	}
	l.hangUp()
}

// hold waits until a delivery may proceed, or the client is gone.
func (l *link) hold(d delivery) {
	for _, r := range d.holds {
		l.wait(r.released, l.clientGone)
	}
	if d.due.IsZero() {
		return
	}
	timer := time.NewTimer(time.Until(d.due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.clientGone:
	case <-l.proxy.closing.Done():
	}
}

func (l *link) wait(released, gone <-chan struct{}) {
	select {
	case <-released:
	case <-gone:
	case <-l.proxy.closing.Done():
	}
}

// hangUp closes the client's connection.
func (l *link) hangUp() {
	defer l.proxy.gate.leave()
	l.proxy.gate.enter()
	_ = l.client.Close()
}

// send writes b through the gate, in as many steps as Stall and Cut split it into. It returns false
// if the connection is broken. It checks wanted only before the first byte: a command that is
// partly sent is always completed.
func (l *link) send(to net.Conn, b []byte, wanted func() bool) bool {
	all := len(b)
	step := func() (int, error) {
		defer l.proxy.gate.leave()
		if !l.proxy.gate.enter() {
			return 0, net.ErrClosed
		}
		if len(b) == all && !wanted() {
			return all, nil
		}
		return to.Write(b)
	}
	for len(b) > 0 {
		n, err := step()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		b = b[n:]
	}
	return true
}

// wants reports whether a command must still be forwarded. Otherwise it is never answered.
func (l *link) wants(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.severed && !c.mustRun() {
		l.pending = slices.DeleteFunc(l.pending, func(other *call) bool { return other == c })
		l.answerOwn()
		return false
	}
	return true
}

func (l *link) wantsReply() bool { return !l.isSevered() }

func (l *link) isSevered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.severed
}

// sever ends the link except for commands that must run. The gate must be shut.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.severed = true
	_ = l.client.Close()
	if l.mustRun == 0 {
		_ = l.server.Close()
	}
}

// mute is sever without closing the connections. The gate must be shut.
func (l *link) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.severed, l.deaf = true, true
}

// interrupt makes running writes return early; resume allows writes again.
func (l *link) interrupt() {
	past := time.Unix(1, 0)
	_ = l.client.SetWriteDeadline(past)
	_ = l.server.SetWriteDeadline(past)
}

func (l *link) resume() {
	_ = l.client.SetWriteDeadline(time.Time{})
	_ = l.server.SetWriteDeadline(time.Time{})
}

// end closes both sides at once.
func (l *link) end() {
	_ = l.client.Close()
	_ = l.server.Close()
}
