package redistest

import "sync"

// gate lets all steps through, or none. A step is anything with an effect outside: a write, a
// close, an arriving command.
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

// enter waits until the gate is open. It returns false once the gate is closed for good. The caller
// must call leave in both cases.
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

// shut stops further steps, interrupts the running ones, and returns when the last one has left.
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

// close closes the gate for good: enter returns false from then on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.changed.Broadcast()
}
