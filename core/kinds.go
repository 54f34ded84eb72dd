package core

import "github.com/reqlock/reqlock/core/internal/kinds"

// Kinds returns the names of the kinds of locks, as events, snapshots and metrics have them. The
// order is fixed.
func Kinds() []string { return kinds.Names() }
