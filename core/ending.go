package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
)

// An ending is what a release leaves under the name of a Once.
type ending struct {
	record *lua.Record // nil: none
	// withdrawn removes the binding that the hold has made. A record keeps it.
	withdrawn bool
	// pause is how long no one is to renew a stale record.
	pause time.Duration
}
