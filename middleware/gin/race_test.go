//go:build race

package ginlock

func init() { manyEntries = 1_000 }
