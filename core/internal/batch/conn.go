package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// ErrStale is the error of a connection that leads to the wrong server, or to none, as another one
// has shown. Nothing was sent, and the Redis client drops the connection.
var ErrStale = errors.New("the connection is no longer trusted")

// A ConnectError is a failure before a connection could carry a command: of dialing, of TLS, or of
// the greeting that the Redis client sends first. So the call was not sent.
type ConnectError struct{ Err error }

func (e *ConnectError) Error() string { return e.Err.Error() }

// Unwrap returns a list, because go-redis takes the first error out of another that greeting a
// server has returned.
func (e *ConnectError) Unwrap() []error { return []error{e.Err} }

// IsConnect reports whether err is a failure to connect, so that nothing was sent.
func IsConnect(err error) bool {
	var dial *net.OpError
	var connect *ConnectError
	return errors.As(err, &connect) || errors.As(err, &dial) && dial.Op == "dial"
}

// idleAfter is how long a connection must have been silent to count as idle. Routers, firewalls and
// load balancers forget connections without a word, and packets on them vanish. One that is in use
// has just shown that it works.
const idleAfter = 100 * time.Millisecond

// conns follows the connections that a Redis client dials. It decides which of them scripts may
// use; other commands use all of them.
type conns struct {
	tls      bool         // the client dials with TLS
	sentinel bool         // the client asks Sentinel for the master
	heard    atomic.Int64 // moment of the last bytes from the server, on any connection
	asked    atomic.Int64 // moment of the last script sent to it

	// Connections dialed before redialed lead to a server that is a primary no more.
	redialed atomic.Int64
	// An idle connection did not answer what was sent at the moment muted. So those that have not
	// been heard since are suspect, too.
	muted atomic.Int64

	mismatch mismatch
}

// redial makes the scripts use connections that are dialed from now on. An endpoint's name may lead
// to another server by now.
func (c *conns) redial() { c.redialed.Store(int64(clock.Now())) }

// dial dials a connection and follows it.
func (c *conns) dial(ctx context.Context, network, addr string, next redis.DialHook) (net.Conn, error) {
	dialed, err := c.dialTLS(ctx, network, addr, next)
	switch {
	case err == nil:
		followed := c.follow(dialed)
		if t, ok := ctx.Value(takenKey{}).(*taken); ok {
			t.conn = followed
		}
		return followed.visible(), nil
	case IsConnect(err):
		return nil, err
	}
	return nil, &ConnectError{err}
}

func (c *conns) follow(dialed net.Conn) *conn {
	now := int64(clock.Now())
	followed := &conn{Conn: dialed, all: c, dialed: now}
	followed.heard.Store(now)
	return followed
}

// visible returns the connection as the Redis client gets it.
func (c *conn) visible() net.Conn {
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return rawConn{c, raw}
	}
	return c
}

// A conn is a connection that the Redis client has dialed. If it was idle, it has a third of the
// time to answer a script, so that time is left to try a new one.
type conn struct {
	net.Conn
	all *conns
	// dialed is the moment when the connection was dialed.
	dialed int64
	// lent is true if a duplex uses the connection.
	lent bool
	// heard is the moment when the last bytes from the server arrived.
	heard atomic.Int64
	// greeted is true if the server has answered at least once.
	greeted atomic.Bool
	// asked is the moment when a script was sent while the connection was idle. It is 0 if that was
	// answered, or if the connection was not idle.
	asked atomic.Int64
	// wanted is the read deadline that the Redis client set meanwhile.
	wanted atomic.Pointer[time.Time]
}

// A rawConn is a conn whose socket the Redis client can look at, to see whether it was closed.
type rawConn struct {
	*conn
	raw syscall.Conn
}

func (c rawConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

// Close closes the connection. A client of Sentinel closes those to a master that it has replaced,
// but not the one that a duplex has, so that one must go as well.
func (c *conn) Close() error {
	if c.all.sentinel && !c.lent {
		c.all.redial()
	}
	return c.Conn.Close()
}

// NetConn returns the connection below, which the Redis client asks for.
func (c *conn) NetConn() net.Conn { return c.Conn }

// trusted reports whether scripts may use the connection.
func (c *conn) trusted() bool {
	return c.dialed >= c.all.redialed.Load() && c.heard.Load() >= c.all.muted.Load()
}

// Write refuses a script on a connection that is not trusted. If it fails before the server has said
// anything, it returns why. The engine tries again without a pause after ErrStale.
func (c *conn) Write(b []byte) (int, error) {
	if isScript(b) {
		now := clock.Now()
		if !c.trusted() {
			return 0, ErrStale
		}
		if now.Since(clock.Moment(c.heard.Load())) >= idleAfter {
			c.asked.Store(int64(now))
		}
		c.all.asked.Store(int64(now))
	}
	n, err := c.Conn.Write(b)
	switch {
	case err == nil || c.greeted.Load():
	case !c.all.tls && clock.Now().Since(clock.Moment(c.dialed)) >= idleAfter:
		// The pool dialed it for later use, and the server has restarted since.
		err = fmt.Errorf("%w: %w", ErrStale, err)
	default:
		err = &ConnectError{explainRefusal(c.Conn, err)}
	}
	return n, err
}

// SetReadDeadline shortens the time for the answer to a script.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.asked.Load() != 0 && !t.IsZero() {
		wanted := t // t itself would be allocated for each call
		c.wanted.Store(&wanted)
		t = time.Now().Add(time.Until(t) / 3)
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.hear()
	}
	if err == nil {
		return n, nil
	}
	if asked := c.asked.Load(); asked != 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		c.all.muted.Store(asked)
	}
	if !c.greeted.Load() {
		err = &ConnectError{c.all.mismatch.explainEnd(c, err)}
	}
	return n, err
}

// hear records that the server has sent something. The rest of the answer may take its time.
func (c *conn) hear() {
	now := int64(clock.Now())
	c.heard.Store(now)
	c.all.heard.Store(now)
	if !c.greeted.Load() {
		c.greeted.Store(true)
	}
	if c.asked.Load() != 0 {
		c.asked.Store(0)
		if wanted := c.wanted.Swap(nil); wanted != nil {
			_ = c.Conn.SetReadDeadline(*wanted)
		}
	}
}

// isScript reports whether b begins with a command that runs one of the scripts by its digest.
func isScript(b []byte) bool {
	const command = "$7\r\nEVALSHA\r\n$40\r\n"
	_, rest, _ := bytes.Cut(b, []byte("\r\n")) // the number of arguments
	if len(rest) < len(command)+40 || string(rest[:len(command)]) != command {
		return false
	}
	return lua.Known(rest[len(command) : len(command)+40])
}
