//go:build !linux

package wasm

import "time"

// processorTime says that it does not know.
func processorTime() (time.Duration, bool) { return 0, false }
