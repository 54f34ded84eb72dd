package main

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A delayer forwards connections to a server and delays each chunk of bytes, in both directions, as
// a network would. It limits no bandwidth. One thread does all of it: a timer of Go is up to 1 ms
// late, and goroutines that wake each other would add to the delay.
type delayer struct {
	distance distance
	addr     netip.AddrPort
	server   unix.Sockaddr
	epoll    int
	listener int
	began    time.Time
	streams  map[int]*stream // by the descriptor that they read
	waiting  byDue           // the streams with chunks, without those that are blocked
	buffer   []byte
}

// A stream is one direction of a connection.
type stream struct {
	from, to int
	back     *stream       // the other direction
	open     time.Duration // the time when the handshake ends, which takes a round trip
	last     time.Duration // the time when the last chunk is due
	bytes    backlog[byte]
	chunks   backlog[chunk] // the parts of bytes
	blocked  bool           // the receiver takes no more at the moment
	ended    bool           // the receiver knows that no more comes
	closed   bool
}

// A chunk is what one read returned. One without bytes is the end of the stream.
type chunk struct {
	due  time.Duration
	size int
}

// newDelayer listens on a port of 127.0.0.1.
func newDelayer(server string, d distance) (p *delayer, err error) {
	to, err := netip.ParseAddrPort(server)
	if err != nil {
		return nil, err
	}
	p = &delayer{
		distance: d, server: &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()},
		began: time.Now(), streams: make(map[int]*stream), buffer: make([]byte, 1<<18),
	}
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create", err)
	}
	if p.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return nil, errors.Join(os.NewSyscallError("socket", err), unix.Close(p.epoll))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	err = errors.Join(
		unix.Bind(p.listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(p.listener, 4096),
		p.watch(p.listener, unix.EPOLLIN),
	)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	at, err := unix.Getsockname(p.listener)
	if err != nil {
		return nil, os.NewSyscallError("getsockname", err)
	}
	p.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(at.(*unix.SockaddrInet4).Port))
	return p, nil
}

func (p *delayer) watch(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// close ends all connections.
func (p *delayer) close() error {
	for _, s := range p.streams {
		p.hangUp(s)
	}
	return errors.Join(unix.Close(p.listener), unix.Close(p.epoll))
}

// run forwards until the file ends, or has something to read.
func (p *delayer) run(end *os.File) (err error) {
	defer func() { err = errors.Join(err, p.close()) }()
	if err := exactThread(); err != nil {
		return err
	}
	ends := int(end.Fd())
	if err := p.watch(ends, unix.EPOLLIN); err != nil {
		return err
	}
	for events := make([]unix.EpollEvent, 64); ; {
		n, err := p.await(events)
		if err != nil {
			return err
		}
		now := p.now()
		for _, e := range events[:n] {
			switch fd := int(e.Fd); fd {
			case ends:
				return nil
			case p.listener:
				if err := p.accept(); err != nil {
					return err
				}
			default:
				p.serve(fd, e.Events, now)
			}
		}
		p.forward()
	}
}

// exactThread gives the goroutine a thread of its own that sleeps exactly. By default Linux lets a
// thread sleep for up to 50 us longer than it asks.
func exactThread() error {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0))
}

// sleepExactly is time.Sleep for such a thread.
func sleepExactly(d time.Duration) error {
	spec := unix.NsecToTimespec(int64(d))
	if err := unix.Nanosleep(&spec, nil); err != unix.EINTR { // a signal ends it early
		return os.NewSyscallError("nanosleep", err)
	}
	return nil
}

func (p *delayer) now() time.Duration { return time.Since(p.began) }

// await returns the events of sockets. It returns none if a chunk is due.
func (p *delayer) await(events []unix.EpollEvent) (int, error) {
	if n, err := p.poll(events); n > 0 || err != nil {
		return n, err
	}
	var timeout *unix.Timespec
	if len(p.waiting) > 0 {
		left := p.waiting[0].due() - p.now()
		if left <= 0 {
			return 0, nil
		}
		spec := unix.NsecToTimespec(int64(left))
		timeout = &spec
	}
	// The timeout of epoll_wait counts milliseconds.
	if n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(p.epoll), Events: unix.POLLIN}}, timeout, nil); n <= 0 && err != unix.EINTR {
		return 0, os.NewSyscallError("ppoll", err)
	}
	return p.poll(events)
}

// poll returns the events that are there.
func (p *delayer) poll(events []unix.EpollEvent) (int, error) {
	n, err := unix.EpollWait(p.epoll, events, 0)
	if err == unix.EINTR {
		return 0, nil
	}
	return n, os.NewSyscallError("epoll_wait", err)
}

// accept connects all new clients to the server.
func (p *delayer) accept() error {
	for {
		client, _, err := unix.Accept4(p.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.EAGAIN:
			return nil
		case unix.ECONNABORTED, unix.EINTR:
			continue
		default:
			return os.NewSyscallError("accept", err)
		}
		if err := p.connect(client); err != nil {
			return err
		}
	}
}

func (p *delayer) connect(client int) error {
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errors.Join(os.NewSyscallError("socket", err), unix.Close(client))
	}
	there := &stream{from: client, to: server, open: p.now() + p.distance.trip}
	back := &stream{from: server, to: client, open: there.open, back: there}
	there.back = back
	p.streams[client], p.streams[server] = there, back
	if err := unix.Connect(server, p.server); err != nil {
		p.hangUp(there) // as a server would that is down
		return nil
	}
	for _, fd := range []int{client, server} {
		err := errors.Join(
			unix.SetNonblock(fd, true),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
			p.watch(fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET),
		)
		if err != nil {
			return fmt.Errorf("a new connection: %w", err)
		}
	}
	return nil
}

// serve handles the events of a connection. A descriptor that was closed and used again may get an
// event too many, which does no harm.
func (p *delayer) serve(fd int, events uint32, now time.Duration) {
	s := p.streams[fd]
	if s == nil {
		return
	}
	if events&^unix.EPOLLOUT != 0 {
		p.read(s, now, events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0)
	}
	if events&unix.EPOLLOUT != 0 && s.back.blocked {
		s.back.blocked = false
		p.write(s.back, now)
	}
}

// read queues what has arrived. The end of a stream has no event of its own if it arrives together
// with bytes.
func (p *delayer) read(s *stream, now time.Duration, ends bool) {
	for !s.closed {
		n, err := unix.Read(s.from, p.buffer)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return
		case err != nil:
			p.hangUp(s)
			return
		}
		p.queue(s, p.buffer[:n], now)
		if n == 0 || n < len(p.buffer) && !ends {
			return
		}
	}
}

// queue keeps the order of a stream, even if the delays vary.
func (p *delayer) queue(s *stream, bytes []byte, now time.Duration) {
	delay := max(0, p.distance.trip-p.distance.own) / 2
	if p.distance.jitter > 0 {
		delay += rand.N(p.distance.jitter) / 2
	}
	s.last = max(s.last, max(now, s.open)+delay)
	s.bytes.push(bytes...)
	s.chunks.push(chunk{due: s.last, size: len(bytes)})
	if len(s.chunks.items) == 1 {
		heap.Push(&p.waiting, s)
	}
}

// forward writes all chunks that are due.
func (p *delayer) forward() {
	for len(p.waiting) > 0 {
		now := p.now()
		if p.waiting[0].due() > now {
			return
		}
		p.write(heap.Pop(&p.waiting).(*stream), now)
	}
}

// write writes the chunks of a stream that are due. The stream is not among those that wait.
func (p *delayer) write(s *stream, now time.Duration) {
	if s.closed {
		return
	}
	size, ends := 0, false
	for _, c := range s.chunks.items {
		if c.due > now {
			break
		}
		size += c.size
		ends = c.size == 0
	}
	for size > 0 {
		n, err := unix.Write(s.to, s.bytes.items[:size])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			s.blocked = true
			return
		case err != nil:
			p.hangUp(s)
			return
		}
		s.wrote(n)
		size -= n
	}
	if ends {
		s.ended = true
		if err := unix.Shutdown(s.to, unix.SHUT_WR); err != nil || s.back.ended {
			p.hangUp(s)
		}
		return
	}
	if len(s.chunks.items) > 0 {
		heap.Push(&p.waiting, s)
	}
}

// hangUp closes both sides of a connection. What is on its way is lost.
func (p *delayer) hangUp(s *stream) {
	if s.closed {
		return
	}
	s.closed, s.back.closed = true, true
	delete(p.streams, s.from)
	delete(p.streams, s.to)
	_, _ = unix.Close(s.from), unix.Close(s.to)
}

func (s *stream) due() time.Duration { return s.chunks.items[0].due }

// wrote forgets bytes, and the chunks that were written whole.
func (s *stream) wrote(n int) {
	s.bytes.drop(n)
	for n > 0 {
		first := &s.chunks.items[0]
		if n < first.size {
			first.size -= n
			return
		}
		n -= first.size
		s.chunks.drop(1)
	}
}

// A backlog is a queue that uses its memory again once it is empty.
type backlog[T any] struct{ items, memory []T }

func (q *backlog[T]) push(items ...T) {
	if len(q.items) == 0 {
		q.items = q.memory[:0]
	}
	q.items = append(q.items, items...)
	if cap(q.items) > cap(q.memory) {
		q.memory = q.items
	}
}

func (q *backlog[T]) drop(n int) { q.items = q.items[n:] }

// byDue is a heap of streams by their next chunk.
type byDue []*stream

func (h byDue) Len() int           { return len(h) }
func (h byDue) Less(i, j int) bool { return h[i].due() < h[j].due() }
func (h byDue) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byDue) Push(s any)        { *h = append(*h, s.(*stream)) }

func (h *byDue) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
