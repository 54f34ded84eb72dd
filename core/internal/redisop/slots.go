package redisop

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/batch"
)

// A slotRefresher reads a cluster's slots again when a node was not reached or did not answer: another may have taken over. Left
// alone, the Redis client would look for a dead master for a minute. It asks one node, and may wait for the one that does not
// answer, so that several refreshes may be under way.
type slotRefresher struct {
	cluster    *redis.ClusterClient // nil: there is one server
	timeout    time.Duration
	background func(func()) bool
	last       atomic.Int64 // when the latest refresh began, in ns
	running    atomic.Int32
}

const (
	refreshPause = 200 * time.Millisecond
	refreshes    = 4 // at a time
)

// lookAt refreshes the slots if a try has ended in a way that may mean that a node is gone.
func (s *slotRefresher) lookAt(e end, err error) {
	if s.cluster == nil || e != lost && !IsDial(err) {
		return
	}
	now, last := time.Now().UnixNano(), s.last.Load()
	if now-last < int64(refreshPause) || s.running.Load() >= refreshes || !s.last.CompareAndSwap(last, now) {
		return
	}
	s.running.Add(1)
	if !s.background(s.refresh) {
		s.running.Add(-1)
	}
}

func (s *slotRefresher) refresh() {
	defer s.running.Add(-1)
	ctx, cancel := context.WithTimeout(batch.Bounded(context.Background()), s.timeout)
	defer cancel()
	_ = s.cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // reads the slots first
}

// sameServer reports whether two keys are at one server, as far as the Redis client knows its cluster.
func (s *slotRefresher) sameServer(a, b string) bool {
	if s.cluster == nil || a == b {
		return true
	}
	one, err1 := s.cluster.MasterForKey(context.Background(), a)
	other, err2 := s.cluster.MasterForKey(context.Background(), b)
	return err1 == nil && err2 == nil && one == other
}
