//go:build !linux

package wasm

// atLowPriority runs f. Only Linux has a nice value for each thread.
func atLowPriority(f func()) { f() }
