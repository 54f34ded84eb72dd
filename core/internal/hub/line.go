package hub

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A line is one connection: a writer that subscribes, unsubscribes and pings, and a reader that hands on.
type line struct {
	hub    *Hub
	pubsub *redis.PubSub
	heard  atomic.Bool   // anything at all
	recent atomic.Bool   // anything since the last ping
	ready  chan struct{} // closed by the writer when the connection is there
}

var errSilent = errors.New("no answer to a ping")

// channelsPerCommand bounds the size of one SUBSCRIBE.
const channelsPerCommand = 500

// run returns when the connection has broken or ctx has ended, with both goroutines ended, and why it did.
func (l *line) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	l.ready = make(chan struct{})
	ends := make(chan error, 2)
	go func() { ends <- l.write(ctx) }()
	go func() { ends <- l.read(ctx) }()

	var err error
	left := 2
	select {
	case <-ctx.Done():
	case err = <-ends:
		left--
	}
	cancel()
	_ = l.pubsub.Close() // ends a read under way: the library does not watch the context there
	for ; left > 0; left-- {
		<-ends
	}
	return err
}

// read hands on what arrives. The library's own Channel() drops messages when its reader is slow; Receive does not.
func (l *line) read(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ready:
	}
	for {
		received, err := l.pubsub.Receive(ctx)
		if err != nil {
			return err
		}
		l.heard.Store(true)
		l.recent.Store(true)
		var tell []*Subscription
		switch m := received.(type) {
		case *redis.Message:
			tell = l.hub.subscribers(m.Channel)
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
				tell = l.hub.confirm(m.Channel)
			}
		}
		for _, s := range tell {
			s.notify()
		}
	}
}

// write brings the connection in line with what is wanted.
func (l *line) write(ctx context.Context) error {
	ping := time.NewTicker(l.hub.cfg.PingInterval)
	defer ping.Stop()
	for connected, pinged := false, false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.hub.wake:
			if err := l.synchronise(ctx); err != nil {
				return err
			}
			if !connected {
				connected = true
				close(l.ready)
			}
		case <-ping.C:
			recent := l.recent.Swap(false)
			if pinged && !recent {
				return errSilent
			}
			pinged = connected && !recent && l.hub.Len() > 0
			if !pinged {
				continue
			}
			if err := l.pubsub.Ping(ctx); err != nil {
				return fmt.Errorf("ping: %w", err)
			}
		}
	}
}

func (l *line) synchronise(ctx context.Context) error {
	for {
		subscribe, unsubscribe := l.hub.takeChanges()
		if len(subscribe)+len(unsubscribe) == 0 {
			return nil
		}
		if err := l.send(ctx, subscribe, l.pubsub.Subscribe, l.pubsub.SSubscribe); err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		if err := l.send(ctx, unsubscribe, l.pubsub.Unsubscribe, l.pubsub.SUnsubscribe); err != nil {
			return fmt.Errorf("unsubscribe: %w", err)
		}
	}
}

type command func(ctx context.Context, channels ...string) error

func (l *line) send(ctx context.Context, channels []string, plain, sharded command) error {
	if len(channels) == 0 {
		return nil
	}
	if l.hub.cfg.Plain {
		if err := plain(ctx, channels...); err != nil {
			return err
		}
	}
	if l.hub.cfg.Sharded {
		return sharded(ctx, channels...)
	}
	return nil
}

// takeChanges says what to send next, no more than one command's worth, and takes it as sent.
func (h *Hub) takeChanges() (subscribe, unsubscribe []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, c := range h.changed {
		if len(subscribe) == channelsPerCommand || len(unsubscribe) == channelsPerCommand {
			return subscribe, unsubscribe
		}
		delete(h.changed, name)
		switch wanted := len(c.subs) > 0; {
		case wanted && !c.subscribed:
			c.subscribed = true
			c.unanswered += h.commands()
			subscribe = append(subscribe, name)
		case !wanted && c.subscribed:
			c.subscribed = false
			unsubscribe = append(unsubscribe, name)
		}
		if !c.subscribed && c.unanswered == 0 && len(c.subs) == 0 {
			delete(h.channels, name)
		}
	}
	return subscribe, unsubscribe
}

func (h *Hub) commands() (n int) {
	if h.cfg.Plain {
		n++
	}
	if h.cfg.Sharded {
		n++
	}
	return n
}
