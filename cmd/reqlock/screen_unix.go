//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// windowSize returns the size of a terminal, 0 if it does not know it, and -1 if f is not a
// terminal.
func windowSize(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return -1, -1
	}
	return int(size.Col), int(size.Row)
}
