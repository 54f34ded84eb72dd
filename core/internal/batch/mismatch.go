package batch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// The errors of a server and a Redis client that disagree about TLS.
var (
	// ErrPlainPort: the Redis client speaks TLS to a port that does not.
	ErrPlainPort = errors.New("the port does not speak TLS")
	// ErrTLSPort: the Redis client does not speak TLS to a port that does.
	ErrTLSPort = errors.New("the port speaks TLS")
	// ErrHungUp: the server closed the connection before it said anything.
	ErrHungUp = errors.New("the server closed the connection before it answered")
)

// A mismatch finds out whether the Redis client and the server disagree about TLS. Neither says so:
// Redis takes the hello of TLS for the beginning of a command and waits for the rest, and closes
// a TLS port when it gets a command.
type mismatch struct {
	mu    sync.Mutex
	found error
	until time.Time // found holds
}

const (
	// slowHello is how long TLS may take before the port is asked in plain text.
	slowHello = 300 * time.Millisecond
	// probeTime bounds that question.
	probeTime = 250 * time.Millisecond
	// mismatchHolds is how long the result is used. The Redis client dials several times in a row.
	mismatchHolds = time.Second
)

// dialTLS dials. If TLS takes long, it asks the port in plain text meanwhile.
func (c *conns) dialTLS(ctx context.Context, network, addr string, next redis.DialHook) (net.Conn, error) {
	if !c.tls {
		return next(ctx, network, addr)
	}
	if err := c.mismatch.known(); err != nil {
		return nil, err
	}
	type result struct {
		conn net.Conn
		err  error
	}
	results, gone := make(chan result), make(chan struct{})
	defer close(gone)
	go func() { // ends with the client's DialTimeout at the latest
		conn, err := next(ctx, network, addr)
		select {
		case results <- result{conn, err}:
		case <-gone:
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	plain := make(chan bool, 1)
	late := time.AfterFunc(slowHello, func() { plain <- speaksPlain(network, addr) })
	defer late.Stop()
	for {
		select {
		case r := <-results:
			return r.conn, r.err
		case yes := <-plain:
			if yes {
				return nil, c.mismatch.note(ErrPlainPort)
			}
		}
	}
}

// explainEnd returns why a connection ended before the server said anything.
func (m *mismatch) explainEnd(c *conn, err error) error {
	if c.all.tls || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	found := m.known()
	if found == nil {
		found = ErrHungUp
		if speaksTLS(c.Conn.RemoteAddr()) {
			found = ErrTLSPort
		}
		_ = m.note(found)
	}
	return fmt.Errorf("%w: %w", found, err)
}

// explainRefusal returns why a write failed on a connection from which nothing was read. With TLS 1.3
// a server that wants another certificate says so after the client has finished the handshake, and
// hangs up. A client that still writes learns only that the connection was reset, unless it reads.
func explainRefusal(c net.Conn, err error) error {
	_ = c.SetReadDeadline(time.Now().Add(probeTime))
	if _, why := c.Read(make([]byte, 1)); isAlert(why) {
		return why
	}
	return err
}

// isAlert reports whether the peer has ended TLS with an alert.
func isAlert(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error"
}

func (m *mismatch) known() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.until) {
		return m.found
	}
	return nil
}

func (m *mismatch) note(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.found, m.until = err, time.Now().Add(mismatchHolds)
	return err
}

// speaksPlain reports whether a server answers a command in plain text.
func speaksPlain(network, addr string) bool {
	conn, err := net.DialTimeout(network, addr, probeTime)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probeTime))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	first := make([]byte, 1)
	_, err = io.ReadFull(conn, first)
	return err == nil && (first[0] == '+' || first[0] == '-') // PONG, or that a password is missing
}

// speaksTLS reports whether a server answers the hello of TLS.
func speaksTLS(addr net.Addr) bool {
	if _, tcp := addr.(*net.TCPAddr); !tcp {
		return false
	}
	plain, err := net.DialTimeout(addr.Network(), addr.String(), probeTime)
	if err != nil {
		return false
	}
	defer plain.Close()
	_ = plain.SetDeadline(time.Now().Add(probeTime))
	// Nothing is sent over this connection, so it does not matter whose certificate it is.
	err = tls.Client(plain, &tls.Config{InsecureSkipVerify: true}).Handshake() //nolint:gosec // see above
	return err == nil || isAlert(err)
}
