package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/clock"
)

// A session is one connection: a writer that subscribes, unsubscribes and pings, and a reader that
// dispatches.
type session struct {
	line   *line
	pubsub *redis.PubSub
	sent   unanswered
	ready  chan struct{} // closed by the writer once it has connected
}

var errSilent = errors.New("no answer to a ping")

func newSession(l *line) *session {
	return &session{line: l, ready: make(chan struct{})}
}

// run runs the session until the connection breaks or ctx ends. It waits for both goroutines and
// returns the cause.
func (s *session) run(ctx context.Context) (err error) {
	if s.pubsub, err = s.line.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ends := make(chan error, 2)
	go func() { ends <- s.write(ctx) }()
	go func() { ends <- s.read(ctx) }()

	left := 2
	select {
	case <-ctx.Done():
	case err = <-ends:
		left--
	}
	cancel()
	_ = s.pubsub.Close() // ends a pending read, where go-redis does not watch the context
	for ; left > 0; left-- {
		<-ends
	}
	return err
}

// read dispatches what arrives. It uses Receive, because go-redis's Channel() drops messages when
// its reader is slow.
func (s *session) read(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ready:
	}
	for {
		received, err := s.pubsub.Receive(ctx)
		if err != nil && !s.concernsRoutes(err) {
			return err
		}
		s.line.hears()
		s.dispatch(received)
	}
}

// dispatch handles what was received, and notifies the listener that it concerns.
func (s *session) dispatch(received any) {
	var l Listener
	switch m := received.(type) {
	case *redis.Message:
		l = s.line.hub.listener(m.Channel)
		if r, ok := l.(Reader); ok {
			r.Read(m.Payload)
			return
		}
	case *redis.Subscription:
		switch m.Kind {
		case "subscribe":
			l = s.confirmed(m.Channel, plain)
		case "ssubscribe":
			l = s.confirmed(m.Channel, sharded)
		case "unsubscribe":
			s.left(m.Channel, plain)
		case "sunsubscribe":
			s.left(m.Channel, sharded)
		}
	case *redis.Pong:
		s.sent.pong()
	}
	if l != nil {
		l.Notify()
	}
}

// confirmed handles a confirmation and returns the listener to notify, or nil.
func (s *session) confirmed(channel string, kind uint8) Listener {
	s.sent.confirmed(order{kind: kind, subscribe: true}, channel)
	l := s.line.confirm(channel, kind)
	s.line.hub.regain(s.line.node)
	return l
}

func (s *session) left(channel string, kind uint8) {
	s.sent.confirmed(order{kind: kind}, channel)
	s.line.left(channel, kind)
}

// concernsRoutes handles an error reply that concerns some channels but not the connection: the
// user may not subscribe to them, or a cluster node does not serve their slot. Such a node's error
// names the slot, not the channels.
func (s *session) concernsRoutes(err error) bool {
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		cmd, ok := s.sent.refused(func(o order) bool { return o.kind != pings })
		return ok && s.line.forbid(cmd, err)
	case !s.line.hub.inCluster():
		return false
	case redis.HasErrorPrefix(err, "MOVED"):
		words := strings.Fields(err.Error())
		if len(words) < 2 {
			return false
		}
		slot, bad := strconv.Atoi(words[1])
		s.sent.refused(func(o order) bool { return o.kind == sharded && int(o.slot) == slot })
		s.line.refused(func(r *route) bool { return r.kind == sharded && int(r.slot) == slot })
		return bad == nil
	case redis.HasErrorPrefix(err, "CLUSTERDOWN"):
		s.sent.refused(func(o order) bool { return o.kind == sharded })
		s.line.refused(func(r *route) bool { return r.kind == sharded && (r.unanswered > 0 || r.leaving > 0) })
		return true
	}
	return false
}

// write subscribes and unsubscribes as wanted, and pings.
func (s *session) write(ctx context.Context) error {
	ping := time.NewTicker(s.line.hub.cfg.PingInterval)
	defer ping.Stop()
	looked := clock.Now() // when a ping was last due
	for connected, pinged := false, false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.line.wake:
			if err := s.synchronize(ctx); err != nil {
				return err
			}
			if !connected {
				connected = true
				close(s.ready)
			}
		case <-ping.C:
			s.line.retry()
			now := clock.Now()
			recent := s.line.heardSince(looked)
			looked = now
			if pinged && !recent {
				return errSilent
			}
			pinged = connected && !recent && s.line.busy()
			if !pinged {
				continue
			}
			s.sent.sent(command{order: order{kind: pings}})
			if err := s.pubsub.Ping(ctx); err != nil {
				return fmt.Errorf("ping: %w", err)
			}
		}
	}
}

// synchronize sends the commands that are due until the subscriptions are as wanted.
func (s *session) synchronize(ctx context.Context) error {
	for {
		orders := s.line.takeOrders()
		if len(orders) == 0 {
			return nil
		}
		for kind := range uint8(kinds) { // in a fixed order
			for o, channels := range orders {
				if o.kind != kind {
					continue
				}
				if err := s.send(ctx, o, channels); err != nil {
					return err
				}
			}
		}
	}
}

func (s *session) send(ctx context.Context, o order, channels []string) error {
	s.sent.sent(command{o, slices.Clone(channels)})
	var err error
	switch {
	case o.kind == plain && o.subscribe:
		err = s.pubsub.Subscribe(ctx, channels...)
	case o.kind == plain:
		err = s.pubsub.Unsubscribe(ctx, channels...)
	case o.subscribe:
		err = s.pubsub.SSubscribe(ctx, channels...)
	default:
		err = s.pubsub.SUnsubscribe(ctx, channels...)
	}
	if err != nil {
		return fmt.Errorf("subscribe or unsubscribe: %w", err)
	}
	return nil
}
