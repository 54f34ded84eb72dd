package sim

import (
	"container/heap"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The network. Each connection has two pipes, in which packets keep their order; packets of different connections overtake each
// other. Everything that happens here and in the servers is an event of one queue, executed one by one by one goroutine. Times
// are drawn to the nanosecond, so two events hardly ever share an instant, and the bubble's clock moves only when everything
// that the last event has set off has come to rest.

// An event is due at a time of the simulation.
type event struct {
	at  time.Duration
	seq uint64
	do  func() // with the world's mutex
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

// at has something done at a time. The caller has the mutex.
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

// run executes events until the world ends.
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

// A packet is what one Write has sent, or one reply.
type packet struct {
	at       time.Duration
	commands [][]string
	reply    []byte
	then     func() // with the world's mutex, after it has arrived
}

// A conn is one connection, with the client's end of it as a net.Conn. The world's mutex guards it.
type conn struct {
	world  *world
	client *machine
	node   *node
	id     int
	rng    *rand.Rand

	up, down         []packet
	lastUp, lastDown time.Duration
	silent           bool // nothing arrives any more, in either direction
	gone             bool // the server has closed it
	name             string

	unparsed []byte
	unread   []byte
	err      error         // of the client's end
	closed   bool          // by the client
	signal   chan struct{} // to the reader
	deadline time.Time     // of reads
	reading  bool          // a reader sleeps

	greets     bool // it is for subscriptions, and has none yet
	subscribed map[string]bool
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

func netError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Err: err}
}

// dial connects a client to a node.
func (w *world) dial(ctx context.Context, m *machine, addr string) (net.Conn, error) {
	w.mu.Lock()
	n := w.node(addr)
	w.conns++
	c := &conn{world: w, client: m, node: n, id: w.conns, signal: make(chan struct{}, 1)}
	c.name = m.name + "#" + itoa(c.id)
	c.rng = w.stream("conn", uint64(c.id))
	if forPubSub() {
		defer w.mu.Unlock()
		if m.dead || n.down || c.heldUntil() > w.now() {
			return nil, netError("dial", syscall.ECONNREFUSED)
		}
		c.greets = true
		n.conns, w.lines = append(n.conns, c), append(w.lines, c)
		return c, nil
	}
	done := make(chan error, 1)
	arrive := func() {}
	arrive = func() {
		switch until := c.heldUntil(); {
		case m.dead:
		case until > w.now():
			w.at(until+c.jitter(), arrive)
		case n.down:
			done <- syscall.ECONNREFUSED
		default:
			n.conns = append(n.conns, c)
			w.lines = append(w.lines, c)
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
	}
}

// forPubSub reports whether a connection is for subscriptions. go-redis makes those with a mutex held, for which others may wait;
// and while a goroutine waits for a mutex, the clock of a bubble stands still. So they are made, and greeted, at once, or refused
// at once.
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

// greet answers the first commands of a connection for subscriptions at once, also where the server refuses all others: go-redis
// would pause and try again.
func (c *conn) greet(commands [][]string) {
	for _, args := range commands {
		c.unread = appendReply(c.unread, hail(strings.ToUpper(args[0])))
	}
}

// hail is the reply to what a client sends first.
func hail(command string) any {
	if command == "HELLO" {
		return errorReply("ERR unknown command 'HELLO'")
	}
	return status("OK")
}

// latency is that of one packet.
func (c *conn) latency() time.Duration {
	w := c.world
	d := w.cfg.latency/2 + time.Duration(c.rng.ExpFloat64()*float64(w.cfg.latency)/2)
	if w.slowUntil > w.now() {
		d *= time.Duration(w.slowness)
	}
	return min(d, w.straggle()/2) + time.Duration(c.rng.IntN(1000))
}

func (c *conn) jitter() time.Duration {
	return time.Duration(c.rng.Int64N(int64(20 * time.Millisecond)))
}

// heldUntil is until when nothing passes between the client and the node.
func (c *conn) heldUntil() time.Duration {
	return max(c.client.frozenUntil, c.node.pausedUntil, c.client.cutOff[c.node])
}

// Write sends what are whole commands.
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
	c.unparsed = append(c.unparsed, b...)
	commands, rest := parseCommands(c.unparsed)
	c.unparsed = append(c.unparsed[:0], rest...)
	switch {
	case len(commands) == 0:
	case c.greets && !strings.HasSuffix(strings.ToLower(commands[0][0]), "subscribe"):
		c.greet(commands)
	default:
		c.greets = false
		c.send(commands)
	}
	return len(b), nil
}

// send puts commands on their way. On a bad line they, or their replies, may be lost or late.
func (c *conn) send(commands [][]string) {
	w := c.world
	if c.client.dead || c.silent {
		return
	}
	p := packet{at: w.now() + c.latency(), commands: commands}
	if w.flaky(c) {
		c.mishap(&p)
	}
	if p.commands == nil {
		return
	}
	p.at = max(p.at, c.lastUp+1)
	c.lastUp = p.at
	c.up = append(c.up, p)
	w.at(p.at, c.pumpUp)
}

// mishap decides what becomes of a packet on a bad line.
func (c *conn) mishap(p *packet) {
	w := c.world
	switch c.rng.IntN(8) {
	case 0:
		w.note("network", "%s: the request is lost, and the line is silent", c.name)
		p.commands, c.silent = nil, true
	case 1:
		w.note("network", "%s: the reply will be lost, and the line is silent", c.name)
		p.then = func() { c.down, c.silent = nil, true }
	case 2:
		w.note("network", "%s: the request is lost, and the line is cut", c.name)
		p.commands = nil
		c.cut()
	case 3:
		w.note("network", "%s: the reply will be lost, and the line is cut", c.name)
		p.then = func() { c.cut() }
	case 4:
		keep := c.rng.IntN(len(p.commands)) + 1
		w.note("network", "%s: %d of %d commands will arrive, and the line is cut", c.name, keep, len(p.commands))
		p.commands = p.commands[:keep]
		p.then = func() { c.cut() }
	case 5, 7:
		p.at += time.Duration(c.rng.Int64N(int64(w.straggle() / 2)))
		w.note("network", "%s: the line is cut, and the request arrives at %s all the same", c.name, stamp(p.at))
		c.fail(io.EOF)
	case 6:
		p.at += time.Duration(c.rng.Int64N(int64(w.straggle() / 2)))
		w.note("network", "%s: the request arrives late, at %s", c.name, stamp(p.at))
	}
}

// pumpUp delivers to the server what has arrived.
func (c *conn) pumpUp() {
	w := c.world
	for len(c.up) > 0 && c.up[0].at <= w.now() {
		if until := c.heldUntil(); until > w.now() {
			w.at(until+c.jitter(), c.pumpUp)
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

// answer sends bytes to the client.
func (c *conn) answer(reply []byte) {
	w := c.world
	if c.closed || c.gone || c.silent || c.client.dead {
		return
	}
	at := max(w.now()+c.latency(), c.lastDown+1)
	c.lastDown = at
	c.down = append(c.down, packet{at: at, reply: reply})
	w.at(at, c.pumpDown)
}

// pumpDown delivers to the client what has arrived.
func (c *conn) pumpDown() {
	w := c.world
	for len(c.down) > 0 && c.down[0].at <= w.now() {
		if until := c.heldUntil(); until > w.now() {
			w.at(until+c.jitter(), c.pumpDown)
			return
		}
		p := c.down[0]
		c.down = c.down[1:]
		if p.then != nil {
			p.then()
		}
		if c.err == nil && !c.closed {
			c.unread = append(c.unread, p.reply...)
			c.poke()
		}
	}
}

// cut breaks the line, and what is on its way with it. The client hears of it a moment later.
func (c *conn) cut() {
	w := c.world
	c.up, c.down = nil, nil
	c.node.drop(c)
	at := max(w.now()+c.latency(), c.lastDown+1)
	c.lastDown = at
	c.down = append(c.down, packet{at: at, then: func() { c.fail(io.EOF) }})
	w.at(at, c.pumpDown)
}

// flush delivers what a fault has held back that was to last longer.
func (c *conn) flush() {
	w := c.world
	w.at(w.now()+c.jitter(), c.pumpUp)
	w.at(w.now()+c.jitter(), c.pumpDown)
}

// fail ends the client's end with an error.
func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
		c.poke()
	}
}

func (c *conn) poke() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// Read waits for bytes until the deadline.
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

// sleep waits until there may be something to read.
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
	c.poke()
	at := max(w.now()+c.latency(), c.lastUp+1) // behind what was sent
	w.at(at, c.pumpUp)
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
		c.poke()
	}
	return nil
}

// SetWriteDeadline does nothing: a write never blocks.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
