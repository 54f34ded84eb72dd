package core

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A serverIDs has the run IDs of the servers that a client has reached, for locks that must be on
// servers of their own. Addresses do not tell: a server may have several. A server that does not say
// its run ID has none here.
type serverIDs struct {
	redis      redisclient.Client
	timeout    time.Duration
	background func(func()) bool
	known      atomic.Pointer[[]string]

	mu     sync.Mutex
	asking chan struct{} // closed when the question under way has ended; nil: none is
	vain   bool          // the last question had no answer, so no caller waits for the next
}

// identify asks the server, or each master of the cluster, for its run ID, if that is not known yet.
// It waits for the answer or the end of ctx, except for a server that has not answered before: a
// RedLock must not wait for a master that is down.
func (s *serverIDs) identify(ctx context.Context) {
	done, wait := s.question()
	if !wait {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// question returns what is closed when the question under way ends, or a new one, and whether to
// wait for it.
func (s *serverIDs) question() (done chan struct{}, wait bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.Load() != nil {
		return nil, false
	}
	if s.asking == nil {
		s.asking = make(chan struct{})
		if !s.background(s.ask) { // the client is closed
			s.asking = nil
			return nil, false
		}
	}
	return s.asking, !s.vain
}

func (s *serverIDs) ask() {
	ctx, cancel := context.WithTimeout(batch.Bounded(context.Background()), s.timeout)
	defer cancel()
	ids, err := runIDs(ctx, s.redis)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vain = err != nil; err == nil {
		s.known.Store(&ids)
	}
	close(s.asking)
	s.asking = nil
}

func runIDs(ctx context.Context, rdb redisclient.Client) (ids []string, err error) {
	masters, err := rdb.Masters(ctx)
	for _, node := range masters {
		text, failed := node.Info(ctx, "server").Result()
		if failed != nil && !redisclient.Declines(failed) {
			return nil, failed
		}
		if id := runID(text); id != "" {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// runID returns the run ID in the reply to INFO, or an empty string.
func runID(info string) string {
	for line := range strings.Lines(info) {
		if id, found := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); found {
			return id
		}
	}
	return ""
}

// sharedServer returns the run ID of a server that both clients have reached, or an empty string.
// After it has returned one, they are asked again: a name may have been corrected by then.
func sharedServer(a, b *serverIDs) string {
	these, those := a.known.Load(), b.known.Load()
	if a == b || these == nil || those == nil {
		return ""
	}
	for _, id := range *these {
		if slices.Contains(*those, id) {
			a.known.Store(nil)
			b.known.Store(nil)
			return id
		}
	}
	return ""
}
