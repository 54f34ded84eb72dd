package core

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// A serverIDs has the run IDs of the servers that a client has reached, for locks that must be on
// servers of their own. Addresses do not tell: a server may have several. A server that does not say
// its run ID has none here.
type serverIDs struct {
	known atomic.Pointer[[]string]

	mu     sync.Mutex
	asking chan struct{} // closed when the question under way has ended; nil: none is
	vain   bool          // the last question had no answer, so no caller waits for the next
}

// identify asks the server of the client, or each master of its cluster, for its run ID, if that is
// not known yet. It waits for the answer or the end of ctx, except for a server that has not
// answered before: a RedLock must not wait for a master that is down.
func (c *Client) identify(ctx context.Context) {
	s := &c.servers
	s.mu.Lock()
	if s.known.Load() != nil {
		s.mu.Unlock()
		return
	}
	done, vain := s.asking, s.vain
	if done == nil {
		done = make(chan struct{})
		if s.asking = done; !c.background.Go(c.askServers) {
			s.asking = nil
			close(done)
		}
	}
	s.mu.Unlock()
	if vain {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (c *Client) askServers() {
	ctx, cancel := context.WithTimeout(batch.Bounded(context.Background()), c.opts.CommandTimeout)
	defer cancel()
	ids, err := runIDs(ctx, c.redis)
	s := &c.servers
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
func sharedServer(a, b *Client) string {
	these, those := a.servers.known.Load(), b.servers.known.Load()
	if a == b || these == nil || those == nil {
		return ""
	}
	for _, id := range *these {
		if slices.Contains(*those, id) {
			a.servers.known.Store(nil)
			b.servers.known.Store(nil)
			return id
		}
	}
	return ""
}

// database returns the database of a client. Clients of one server with different ones share no
// keys.
func (c *Client) database() int {
	if node := c.redis.Node(); node != nil {
		return node.Options().DB
	}
	return 0
}

// identifyAll calls identify for all clients of a lock at the same time.
func identifyAll(ctx context.Context, l Locker) {
	var clients []*Client
	for _, p := range parts(l) {
		if !slices.Contains(clients, p.lock.c) && p.lock.c.servers.known.Load() == nil {
			clients = append(clients, p.lock.c)
		}
	}
	done := make(chan struct{}, len(clients))
	for _, c := range clients {
		go func() { // ends with ctx, or within CommandTimeout; the loop below waits for it
			c.identify(ctx)
			done <- struct{}{}
		}()
	}
	for range clients {
		<-done
	}
}
