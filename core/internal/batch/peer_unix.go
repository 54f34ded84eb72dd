//go:build unix

package batch

import (
	"net"
	"syscall"
)

// A peer is the other end of a connection. One goroutine at a time uses it.
type peer struct {
	raw   syscall.RawConn // nil: it cannot be looked at
	look  func(fd uintptr)
	ended bool
}

// bind makes p the other end of a connection.
func (p *peer) bind(c net.Conn) {
	for {
		below, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = below.NetConn()
	}
	if socket, ok := c.(syscall.Conn); ok {
		p.raw, _ = socket.SyscallConn()
		p.look = p.peek
	}
}

func (p *peer) peek(fd uintptr) {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	waits := err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR
	p.ended = !waits && (err != nil || n == 0)
}

// hasEnded reports whether the other end has closed the connection while nothing was in flight.
func (p *peer) hasEnded() bool {
	if p.raw == nil {
		return false
	}
	return p.raw.Control(p.look) != nil || p.ended
}
