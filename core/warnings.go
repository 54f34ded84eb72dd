package core

import (
	"log/slog"
	"slices"
	"sync"
)

// A Warning is something that Ping found: locks work, but some may be lost, or some kinds of locks
// do not work.
type Warning struct {
	Server  string // its address, in a cluster
	Check   string // eviction, persistence, permissions or settings
	Finding string
	Change  string // what to do
}

// A checkup keeps the warnings of the last Ping.
type checkup struct {
	mu   sync.Mutex
	last []Warning
}

// note logs the warnings that the Ping before did not find.
func (c *checkup) note(found []Warning, logger *slog.Logger) {
	c.mu.Lock()
	before := c.last
	c.last = found
	c.mu.Unlock()
	for _, w := range found {
		if slices.Contains(before, w) {
			continue
		}
		args := []any{"check", w.Check, "finding", w.Finding, "change", w.Change}
		if w.Server != "" {
			args = append(args, "server", w.Server)
		}
		logger.Warn("reqlock: ping: locks are at risk", args...)
	}
}
