package inspect

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redisacl"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// countListeners sets how many clients wait for each lock, and which waiters of fair locks no
// client listens for.
func countListeners(ctx context.Context, rdb redisclient.Client, locks []Lock) error {
	var channels []string
	for i := range locks {
		channels = append(channels, locks[i].channels()...)
	}
	slices.Sort(channels)
	count, err := subscribers(ctx, rdb, slices.Compact(channels))
	if err != nil {
		return err
	}
	for i := range locks {
		l := &locks[i]
		keys := core.KeysOf(l.Name)
		for j := range l.Queue {
			w := &l.Queue[j]
			w.Absent = count.complete && count.of(keys.FairChannel(w.Owner)) == 0
		}
		for _, channel := range l.channels() {
			l.Listeners += count.of(channel)
		}
		if count.denied {
			l.Listeners = -1
		}
	}
	return nil
}

// channels returns the channels that wake waiters for the lock.
func (l *Lock) channels() []string {
	keys := core.KeysOf(l.Name)
	switch {
	case l.Semaphore != nil:
		return []string{keys.PermitChannel}
	case l.Kind == "read" || l.Kind == "write":
		return []string{keys.ReadWriteChannel}
	}
	channels := []string{keys.Channel}
	for _, w := range l.Queue {
		channels = append(channels, keys.FairChannel(w.Owner))
	}
	return channels
}

// subscriptions counts the clients that listen on channels.
type subscriptions struct {
	mu             sync.Mutex
	plain, sharded map[string]int64
	complete       bool // every node has answered
	denied         bool // Redis does not permit to count
}

// of returns the clients on a channel. A client may listen on the plain and the sharded channel of
// one name, so the counts do not add up.
func (s *subscriptions) of(channel string) int64 {
	return max(s.plain[channel], s.sharded[channel])
}

// channelsAtOnce is how many channels one command asks for.
const channelsAtOnce = 500

// subscribers asks every node of a cluster, because a client may have subscribed at any of them. It
// ignores nodes that do not answer.
func subscribers(ctx context.Context, rdb redisclient.Client, channels []string) (*subscriptions, error) {
	s := &subscriptions{plain: make(map[string]int64), sharded: make(map[string]int64), complete: true}
	if len(channels) == 0 {
		return s, nil
	}
	if rdb.Cluster == nil {
		return s, s.ask(ctx, rdb, channels)
	}
	err := rdb.Cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := s.ask(ctx, node, channels); err != nil {
			s.mu.Lock()
			s.complete = false
			s.mu.Unlock()
		}
		return ctx.Err()
	})
	return s, err
}

// ask adds the subscribers at one node.
func (s *subscriptions) ask(ctx context.Context, node redis.Cmdable, channels []string) error {
	for some := range slices.Chunk(channels, channelsAtOnce) {
		plain, err := node.PubSubNumSub(ctx, some...).Result()
		if redisacl.Denied(err) {
			s.mu.Lock()
			s.complete, s.denied = false, true
			s.mu.Unlock()
			return nil
		}
		if err != nil {
			return err
		}
		sharded, err := node.PubSubShardNumSub(ctx, some...).Result()
		if refused := redis.Error(nil); err != nil && !errors.As(err, &refused) {
			return err // a refusal: it has no sharded channels
		}
		s.mu.Lock()
		for channel, n := range plain {
			s.plain[channel] += n
		}
		for channel, n := range sharded {
			s.sharded[channel] += n
		}
		s.mu.Unlock()
	}
	return nil
}
