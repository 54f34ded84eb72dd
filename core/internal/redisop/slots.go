package redisop

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A slotRefresher reloads a cluster's slots if a node cannot be reached or does not answer, because
// another may have taken over. By itself, the Redis client would keep trying a dead master for a
// minute. A refresh asks one node, which may be the one that does not answer, so several refreshes
// may run at the same time.
type slotRefresher struct {
	redis      redisclient.Client
	timeout    time.Duration
	background func(func()) bool
	// last is when the last refresh began, in ns since the epoch.
	last    atomic.Int64
	running atomic.Int32
}

const (
	// refreshPause is the least time between the starts of two refreshes.
	refreshPause = 200 * time.Millisecond
	// refreshes is how many may run at the same time.
	refreshes = 4
)

// refreshAfter refreshes the slots if a try ended as it would with a dead node.
func (s *slotRefresher) refreshAfter(e end, err error) {
	if s.redis.Cluster == nil || e != lost && !batch.IsConnect(err) {
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
	_, _ = s.redis.Masters(ctx)
}

// sameServer reports whether two keys are on one server, by the slots that the Redis client knows.
func (s *slotRefresher) sameServer(a, b string) bool {
	if a == b {
		return true
	}
	one, err1 := s.redis.MasterForKey(context.Background(), a)
	other, err2 := s.redis.MasterForKey(context.Background(), b)
	return err1 == nil && err2 == nil && one == other
}
