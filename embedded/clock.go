package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// clock keeps a miniredis on real time. miniredis decreases its TTLs by the time its clock has
// advanced. This clock advances it just before each command that comes from a connection.
//
// Two alternatives were rejected. A ticker shortens TTLs by up to one tick, because it also
// subtracts the part of the tick before the TTL was set, and a lock must never end before its
// holder expects. If miniredis reads the time itself, a key can expire between two commands of one
// script, which Redis rules out.
type clock struct {
	mini  *miniredis.Miniredis
	conns sync.Map // *server.Peer -> struct{}: the open connections

	mu sync.Mutex // readings reach miniredis in the order they were made
}

// runClock must be called before any client can know the server's address.
func runClock(mini *miniredis.Miniredis) *clock {
	c := &clock{mini: mini}
	c.advance()
	mini.ClockTTL(true)
	mini.Server().SetPreHook(c.beforeCommand)
	return c
}

// beforeCommand runs on the connection's goroutine, before the command takes miniredis's lock. For
// a command inside a script that lock is already held, so advancing the clock would deadlock,
// besides moving the script's time.
func (c *clock) beforeCommand(peer *server.Peer, _ string, _ ...string) (handled bool) {
	if c.isConnection(peer) {
		c.advance()
	}
	return false
}

// isConnection distinguishes a connection from the peer with which a script calls its commands. A
// connection has no context at its first command; a script's peer has one from the beginning.
func (c *clock) isConnection(peer *server.Peer) bool {
	if _, known := c.conns.Load(peer); known {
		return true
	}
	if peer.Ctx != nil {
		return false
	}
	c.conns.Store(peer, struct{}{})
	peer.OnDisconnect(func() { c.conns.Delete(peer) })
	return true
}

// advance moves miniredis to the present. Differences between readings use the monotonic clock.
func (c *clock) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mini.SetTime(time.Now())
}
