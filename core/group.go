package core

import "sync"

// A group runs goroutines and waits for them. Unlike a sync.WaitGroup, it can be closed while
// others still call Go.
type group struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// Go starts a goroutine, unless the group is closed, and reports whether it did.
func (g *group) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// close refuses further goroutines and waits for the running ones.
func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}
