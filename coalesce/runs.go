package coalesce

import (
	"slices"
	"strings"

	"github.com/reqlock/reqlock/core"
)

// A Run is work that callers of this process share at this moment. One of them runs, or waits for the
// run of another process.
type Run struct {
	// Key is the key of Do. For requests it is a hash, as in the name of their lock.
	Key string
	// Waiting is how many others of this process wait in memory for the result.
	Waiting int
}

// Runs returns the runs that callers of a client share now, by key. It asks only this process.
func Runs(locks *core.Client) (runs []Run) {
	waiting := make(map[string]int)
	groups.mu.Lock()
	for key, g := range groups.byKey {
		if key.locks == locks {
			waiting[key.key] += g.waiting
		}
	}
	groups.mu.Unlock()
	for key, n := range waiting {
		runs = append(runs, Run{key, n})
	}
	slices.SortFunc(runs, func(a, b Run) int { return strings.Compare(a.Key, b.Key) })
	return runs
}
