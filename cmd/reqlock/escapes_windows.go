package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// showsEscapes makes a console of Windows understand colors and positions, which old ones cannot.
func showsEscapes(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	return windows.GetConsoleMode(h, &mode) == nil &&
		windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
