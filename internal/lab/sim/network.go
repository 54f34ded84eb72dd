package sim

import (
	"container/heap"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// The network. Each connection has a queue of packets in each direction. Packets of one connection
// keep their order, and those of different connections overtake each other. Whatever happens in the
// network and in the servers is an event in one queue, and a single goroutine executes the events.
// Their times are drawn to the nanosecond, so two events hardly ever share an instant. The clock of
// the bubble moves on only when all effects of the last event are over.

// An event is due at a time in the simulation.
type event struct {
	at  time.Duration
	seq uint64
	// do runs with the world's mutex held.
	do func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return last
}

// at schedules an event. The caller has the mutex.
func (w *world) at(at time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{max(at, w.now()), w.seq, do})
	if w.queue[0].seq == w.seq {
		select {
		case w.sooner <- struct{}{}:
		default:
		}
	}
}

// run executes the events until the world ends.
func (w *world) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.mu.Lock()
		pause := time.Hour
		if len(w.queue) > 0 {
			pause = w.queue[0].at - w.now()
		}
		due := pause <= 0
		if due {
			heap.Pop(&w.queue).(event).do()
		}
		names := w.changed
		w.changed = nil
		w.mu.Unlock()
		w.oracle.check(names)
		if due {
			continue
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-w.sooner:
		case <-w.ended:
			return
		}
	}
}

// A packet holds the commands of one Write, or the replies to them.
type packet struct {
	at       time.Duration
	commands [][]string
	reply    []byte
	// then runs after the packet has arrived, with the world's mutex held.
	then func()
}

// A conn is a connection. It is the net.Conn of the client. The world's mutex guards it.
type conn struct {
	world  *world
	client *process
	node   *node
	id     int
	rng    *rand.Rand

	up, down         []packet
	lastUp, lastDown time.Duration
	// mute is true if no packet arrives any more, in either direction.
	mute bool
	// dropped is true if the server has closed the connection.
	dropped bool
	name    string

	partial []byte
	unread  []byte
	// err is what the client's reads and writes return.
	err error
	// closed is true if the client has closed the connection.
	closed bool
	// signal wakes the reader.
	signal chan struct{}
	// deadline bounds reads.
	deadline time.Time
	// reading is true if a reader is blocked.
	reading bool

	// handshaking is true if the connection is for subscriptions, and nothing else was sent yet.
	handshaking bool
	subscribed  map[string]bool
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

func netError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Err: err}
}

// dial connects a process to a server.
func (w *world) dial(ctx context.Context, proc *process, addr string) (net.Conn, error) {
	w.mu.Lock()
	n := w.node(addr)
	w.dials++
	c := &conn{world: w, client: proc, node: n, id: w.dials, signal: make(chan struct{}, 1)}
	c.name = proc.name + "#" + strconv.Itoa(c.id)
	c.rng = w.stream("conn", uint64(c.id))
	if forPubSub() {
		defer w.mu.Unlock()
		if proc.dead || n.down || c.blockedUntil() > w.now() {
			return nil, netError("dial", syscall.ECONNREFUSED)
		}
		c.handshaking = true
		n.conns, w.conns = append(n.conns, c), append(w.conns, c)
		return c, nil
	}
	done := make(chan error, 1)
	arrive := func() {}
	arrive = func() {
		switch until := c.blockedUntil(); {
		case proc.dead:
		case until > w.now():
			w.at(until+c.jitter(), arrive)
		case n.down:
			done <- syscall.ECONNREFUSED
		default:
			n.conns = append(n.conns, c)
			w.conns = append(w.conns, c)
			done <- nil
		}
	}
	w.at(w.now()+c.latency()+c.latency(), arrive)
	w.mu.Unlock()
	select {
	case err := <-done:
		if err != nil {
			return nil, netError("dial", err)
		}
		return c, nil
	case <-ctx.Done():
		return nil, netError("dial", os.ErrDeadlineExceeded)
	case <-w.ended:
		return nil, netError("dial", syscall.ECONNREFUSED)
	}
}

// forPubSub reports whether dial was called for a connection for subscriptions. go-redis holds a
// mutex while it dials and greets the server, and other goroutines may wait for that mutex. The
// clock of a bubble does not move while a goroutine waits for a mutex. So these connections are
// opened, or refused, without any delay, and their handshake is answered at once.
func forPubSub() bool {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "(*PubSub)") {
			return true
		}
		if !more {
			return false
		}
	}
}

// answerHandshake answers the first commands of a connection for subscriptions, even if the server
// refuses all commands: go-redis would pause and retry.
func (c *conn) answerHandshake(commands [][]string) {
	for _, args := range commands {
		c.unread = memredis.AppendReply(c.unread, handshakeReply(strings.ToUpper(args[0])))
	}
}

// handshakeReply returns the reply to a command that opens a connection.
func handshakeReply(command string) any {
	if command == "HELLO" {
		return memredis.Error("ERR unknown command 'HELLO'")
	}
	return memredis.Status("OK")
}

// latency draws the latency of a packet.
func (c *conn) latency() time.Duration {
	w := c.world
	d := w.cfg.latency/2 + time.Duration(c.rng.ExpFloat64()*float64(w.cfg.latency)/2)
	if w.slowUntil > w.now() {
		d *= time.Duration(w.slowFactor)
	}
	return min(d, w.maxDelay()/2) + time.Duration(c.rng.IntN(1000))
}

func (c *conn) jitter() time.Duration {
	return time.Duration(c.rng.Int64N(int64(20 * time.Millisecond)))
}

// blockedUntil returns until when no packet passes between the process and the server.
func (c *conn) blockedUntil() time.Duration {
	return max(c.client.frozenUntil, c.node.pausedUntil, c.client.cutOff[c.node])
}

// Write sends the complete commands so far.
func (c *conn) Write(b []byte) (int, error) {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.closed:
		return 0, netError("write", net.ErrClosed)
	case c.err != nil:
		return 0, netError("write", syscall.EPIPE)
	}
	c.partial = append(c.partial, b...)
	commands, rest := memredis.ParseCommands(c.partial)
	c.partial = append(c.partial[:0], rest...)
	switch {
	case len(commands) == 0:
	case c.handshaking && !strings.HasSuffix(strings.ToLower(commands[0][0]), "subscribe"):
		c.answerHandshake(commands)
	default:
		c.handshaking = false
		c.send(commands)
	}
	return len(b), nil
}

// send sends commands. A flaky network may lose or delay them, or lose their replies.
func (c *conn) send(commands [][]string) {
	w := c.world
	if c.client.dead || c.mute {
		return
	}
	p := packet{at: w.now() + c.latency(), commands: commands}
	if w.flaky(c) {
		c.disrupt(&p)
	}
	if p.commands == nil {
		return
	}
	p.at = max(p.at, c.lastUp+1)
	c.lastUp = p.at
	c.up = append(c.up, p)
	w.at(p.at, c.deliverUp)
}

// disrupt draws how a flaky network treats a packet.
func (c *conn) disrupt(p *packet) {
	w := c.world
	switch c.rng.IntN(8) {
	case 0:
		w.note("network", "%s: the request is lost, and the connection is mute", c.name)
		p.commands, c.mute = nil, true
	case 1:
		w.note("network", "%s: the reply will be lost, and the connection is mute", c.name)
		p.then = func() { c.down, c.mute = nil, true }
	case 2:
		w.note("network", "%s: the request is lost, and the connection is cut", c.name)
		p.commands = nil
		c.cut()
	case 3:
		w.note("network", "%s: the reply will be lost, and the connection is cut", c.name)
		p.then = func() { c.cut() }
	case 4:
		keep := c.rng.IntN(len(p.commands)) + 1
		w.note("network", "%s: %d of %d commands will arrive, and the connection is cut", c.name, keep, len(p.commands))
		p.commands = p.commands[:keep]
		p.then = func() { c.cut() }
	case 5, 7:
		p.at += time.Duration(c.rng.Int64N(int64(w.maxDelay() / 2)))
		w.note("network", "%s: the connection is cut, but the request will arrive at %s", c.name, stamp(p.at))
		c.fail(io.EOF)
	case 6:
		p.at += time.Duration(c.rng.Int64N(int64(w.maxDelay() / 2)))
		w.note("network", "%s: the request is delayed until %s", c.name, stamp(p.at))
	}
}

// deliverUp delivers the packets that are due to the server.
func (c *conn) deliverUp() {
	w := c.world
	for len(c.up) > 0 && c.up[0].at <= w.now() {
		if until := c.blockedUntil(); until > w.now() {
			w.at(until+c.jitter(), c.deliverUp)
			return
		}
		p := c.up[0]
		c.up = c.up[1:]
		c.node.receive(c, p.commands)
		if p.then != nil {
			p.then()
		}
	}
	if c.closed && len(c.up) == 0 {
		c.node.drop(c)
	}
}

// answer sends replies to the client.
func (c *conn) answer(reply []byte) {
	w := c.world
	if c.closed || c.dropped || c.mute || c.client.dead {
		return
	}
	at := max(w.now()+c.latency(), c.lastDown+1)
	c.lastDown = at
	c.down = append(c.down, packet{at: at, reply: reply})
	w.at(at, c.deliverDown)
}

// deliverDown delivers the packets that are due to the client.
func (c *conn) deliverDown() {
	w := c.world
	for len(c.down) > 0 && c.down[0].at <= w.now() {
		if until := c.blockedUntil(); until > w.now() {
			w.at(until+c.jitter(), c.deliverDown)
			return
		}
		p := c.down[0]
		c.down = c.down[1:]
		if p.then != nil {
			p.then()
		}
		if c.err == nil && !c.closed {
			c.unread = append(c.unread, p.reply...)
			c.wake()
		}
	}
}

// cut breaks the connection and loses the packets in it. The client notices after the latency.
func (c *conn) cut() {
	w := c.world
	c.up, c.down = nil, nil
	c.node.drop(c)
	at := max(w.now()+c.latency(), c.lastDown+1)
	c.lastDown = at
	c.down = append(c.down, packet{at: at, then: func() { c.fail(io.EOF) }})
	w.at(at, c.deliverDown)
}

// flush delivers soon what a fault holds back.
func (c *conn) flush() {
	w := c.world
	w.at(w.now()+c.jitter(), c.deliverUp)
	w.at(w.now()+c.jitter(), c.deliverDown)
}

// fail makes the client's reads and writes fail.
func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
		c.wake()
	}
}

func (c *conn) wake() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// Read blocks until there is a byte, or until the deadline.
func (c *conn) Read(b []byte) (int, error) {
	w := c.world
	for {
		w.mu.Lock()
		n, err := c.readLocked(b)
		deadline := c.deadline
		c.reading = n == 0 && err == nil
		w.mu.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		if err := c.sleep(deadline); err != nil {
			return 0, netError("read", err)
		}
	}
}

func (c *conn) readLocked(b []byte) (int, error) {
	switch {
	case c.closed:
		return 0, netError("read", net.ErrClosed)
	case len(c.unread) > 0:
		n := copy(b, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	case c.err != nil:
		return 0, c.err
	}
	return 0, nil
}

// sleep blocks until there may be something to read.
func (c *conn) sleep(deadline time.Time) error {
	if deadline.IsZero() {
		<-c.signal
		return nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-c.signal:
	case <-timer.C:
	}
	return nil
}

func (c *conn) Close() error {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed, c.down = true, nil
	c.wake()
	at := max(w.now()+c.latency(), c.lastUp+1) // It arrives after the packets that were sent.
	w.at(at, c.deliverUp)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address(c.name) }
func (c *conn) RemoteAddr() net.Addr { return address(c.node.addr) }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) SetReadDeadline(t time.Time) error {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	c.deadline = t
	if c.reading {
		c.wake()
	}
	return nil
}

// SetWriteDeadline does nothing: a write never blocks.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
