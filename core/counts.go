package core

import "github.com/reqlock/reqlock/core/internal/wire"

// holdCounts is what Redis has of a hold, or is to have. Without levels it is nothing.
type holdCounts struct {
	key, field string
	levels
	deepest int32 // the most shared levels it has ever had
}

// levels are how often a hold was entered.
type levels struct{ exclusive, shared int32 }

func (n levels) total() int { return int(n.exclusive + n.shared) }

// plus returns n with one level more.
func (n levels) plus(shared bool) levels {
	if shared {
		n.shared++
	} else {
		n.exclusive++
	}
	return n
}

// timeouts are the keys of the shared levels that the hold has ever had.
func (g holdCounts) timeouts() []string {
	keys := make([]string, g.deepest)
	for i := range keys {
		keys[i] = wire.ReadTimeout(g.key, g.field, i+1)
	}
	return keys
}
