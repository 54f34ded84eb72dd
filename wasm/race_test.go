//go:build race

package wasm

// The race detector makes the host's part of a call ten times as slow: a piece of work between two
// looks at the deadline takes tens of milliseconds.
func init() { maxLate *= 10 }
