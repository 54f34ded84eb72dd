package core

import "github.com/reqlock/reqlock/core/internal/lua"

// An ending is what a release leaves under the name of a Once.
type ending struct {
	record    *lua.Record // nil: none
	withdrawn bool        // no binding of its own either, unless there is a record
}
