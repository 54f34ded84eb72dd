package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/claim"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// holdCounts is how often a hold is entered, in Redis or as it should be there. Without levels,
// Redis has no hold.
type holdCounts struct {
	terms      *terms // what a Once demands; zero for other kinds
	key, field string
	claim.Levels
	deepest int32 // highest number of shared levels it has ever had
	// TTL that the leases need, if one is shared; else 0. A stray may have shortened the time-out
	// keys of the shared levels, so each change of the levels sets them anew.
	need time.Duration
}

// timeouts returns the keys of all shared levels that the hold has ever had.
func (g holdCounts) timeouts() []string {
	keys := make([]string, g.deepest)
	for i := range keys {
		keys[i] = wire.ReadTimeout(g.key, g.field, i+1)
	}
	return keys
}
