package redistest

import "sync"

// gate lets steps through, or none. A step is anything that passes something on: a write, a close, a command that arrives.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond
	isShut  bool
	closed  bool
	inside  int
}

func newGate() *gate {
	g := &gate{}
	g.changed.L = &g.mu
	return g
}

// enter waits until the gate is open; it reports false, and lets the step through, once the gate is closed for good.
// A leave follows either way.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.isShut && !g.closed {
		g.changed.Wait()
	}
	g.inside++
	return !g.closed
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.changed.Broadcast()
}

// shut lets no further step in, has the steps under way interrupted, and returns when the last one has left.
func (g *gate) shut(interrupt func()) {
	g.mu.Lock()
	g.isShut = true
	g.mu.Unlock()
	interrupt()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.inside > 0 {
		g.changed.Wait()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isShut = false
	g.changed.Broadcast()
}

// close opens the gate for good: whoever waits goes through and sees that it is over.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.changed.Broadcast()
}
