package batch

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
)

// go-redis has no way to lend the connection that it dials, greets and authenticates. But the
// connection of a PubSub is outside its pool, and nothing uses it until something subscribes. Our
// hook, which follows each connection that is dialed, learns which one it is.

// takenKey is the key of a context for the dial hook; its value is a *taken.
type takenKey struct{}

// taken is the connection that was dialed with a context.
type taken struct{ conn *conn }

// greeting is what the connection is asked first, to see that nothing was read from it by mistake.
const greeting = "reqlock"

// dialDuplex dials a connection, and returns with it how long the server took to answer.
func dialDuplex(ctx context.Context, node *redis.Client, within time.Duration, background func(func())) (*duplex, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var t taken
	ps := node.Subscribe(ctx)
	hangUp := func() { _ = ps.Close() }
	err := ps.Ping(context.WithValue(ctx, takenKey{}, &t), greeting)
	if err == nil && t.conn == nil {
		err = fmt.Errorf("%T does not dial through its hooks", node)
	}
	if err != nil {
		hangUp()
		return nil, 0, err
	}
	own := node.Options()
	if own.ReadTimeout > 0 {
		within = min(within, own.ReadTimeout)
	}
	d := &duplex{conn: t.conn, hangUp: hangUp, within: within, background: background, idleTime: own.ConnMaxIdleTime}
	if own.ConnMaxLifetime > 0 {
		d.expires = time.Now().Add(own.ConnMaxLifetime)
	}
	d.conn.lent, d.look = true, d.interrupt
	d.peer.bind(d.conn.Conn)
	_ = d.conn.Conn.SetDeadline(time.Now().Add(within))
	if err = d.greet(); err != nil {
		hangUp()
		return nil, 0, err
	}
	took := within
	for range greetings { // dialing took longer than the answer
		asked := time.Now()
		if _, err = d.conn.Conn.Write(appendCommand(nil, []any{"PING", greeting})); err == nil {
			err = d.greet()
		}
		if err != nil {
			hangUp()
			return nil, 0, err
		}
		took = min(took, time.Since(asked))
	}
	_ = d.conn.Conn.SetDeadline(time.Time{})
	return d, took, nil
}

// greetings is how often the round trip is measured on a new connection.
const greetings = 3

// greet reads the reply to a greeting.
func (d *duplex) greet() error {
	d.in = make([]byte, 0, 4096)
	for len(d.values) == 0 {
		n, err := d.conn.Conn.Read(d.in[len(d.in):cap(d.in)])
		if err != nil {
			return err
		}
		d.in = d.in[:len(d.in)+n]
		d.heard.Store(int64(clock.Now()))
		if err := d.parse(); err != nil {
			return err
		}
	}
	text, _ := d.values[0].(string)
	d.values = d.values[:0]
	if text != greeting || len(d.in) > 0 {
		return errProtocol
	}
	return nil
}
