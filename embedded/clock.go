package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// clock keeps a miniredis on real time. miniredis counts its TTLs down by
// whatever its clock has advanced since it last looked; this one advances it
// just before each command that comes from a connection.
//
// Two other ways were turned down. A ticker shortens TTLs by up to one tick,
// because it also subtracts the part of the tick that had passed before the TTL
// was set; a lock must never end before its holder believes so. And letting
// miniredis read the time by itself lets a key expire between two commands of
// one script, which Redis rules out.
type clock struct {
	mini  *miniredis.Miniredis
	conns sync.Map // *server.Peer -> struct{}: the connections that are open

	mu sync.Mutex // readings reach miniredis in the order they were made
}

// runClock is called before anyone can know the server's address.
func runClock(mini *miniredis.Miniredis) *clock {
	c := &clock{mini: mini}
	c.advance()
	mini.ClockTTL(true)
	mini.Server().SetPreHook(c.beforeCommand)
	return c
}

// beforeCommand runs on the connection's goroutine, before the command takes
// miniredis's lock. For a command inside a script that lock is taken already,
// so advancing there would not only move the script's time but wait for itself.
func (c *clock) beforeCommand(peer *server.Peer, _ string, _ ...string) (handled bool) {
	if c.isConnection(peer) {
		c.advance()
	}
	return false
}

// isConnection tells a connection from the stand-in that a script calls its
// commands through: a connection comes to its first command without a context,
// a stand-in has the script's from the beginning.
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

// advance moves miniredis to the present. Time passes by the monotonic clock: a
// reading keeps it, and differences between readings use it.
func (c *clock) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mini.SetTime(time.Now())
}
