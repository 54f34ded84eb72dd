package core

import "github.com/reqlock/reqlock/core/internal/lua"

// terms are what one Once demands of its name. It has a kind of its own for them.
type terms struct {
	recordKey string
	marks     lua.Marks // an empty Binding: the name may be bound to anything
	// looks makes a caller that has waited for a holder take its record, or fail with ErrUnrecorded.
	looks bool
}
