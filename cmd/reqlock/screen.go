package main

import (
	"os"
	"strconv"

	"golang.org/x/term"
)

// A screen says how to show things on an output.
type screen struct {
	terminal bool
	color    bool
	size     func() (columns, rows int) // 0: unlimited
}

func screenOf(f *os.File, getenv func(string) string) screen {
	s := screen{terminal: isTerminal(f)}
	s.terminal = s.terminal && showsEscapes(f)
	s.color = s.terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	s.size = func() (columns, rows int) {
		if !s.terminal {
			return 0, 0
		}
		// Without an answer both are 0.
		columns, rows, _ = term.GetSize(int(f.Fd()))
		if n, err := strconv.Atoi(getenv("COLUMNS")); err == nil && n > 0 {
			columns = n
		}
		return columns, rows
	}
	return s
}

// keys calls leave when q or Ctrl-C is pressed, if in is a terminal. The caller restores the terminal
// at the end.
func (a *app) keys(leave func()) (restore func()) {
	f, ok := a.in.(*os.File)
	if !ok || !isTerminal(f) {
		return func() {}
	}
	state, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return func() {}
	}
	go func() { // it ends with the process
		const ctrlC = 3
		for key := make([]byte, 1); ; {
			if _, err := f.Read(key); err != nil || key[0] == 'q' || key[0] == ctrlC {
				leave()
				return
			}
		}
	}()
	return func() { _ = term.Restore(int(f.Fd()), state) }
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// A style is how a cell looks on a terminal with colors.
type style string

const (
	plain style = ""
	bold  style = "1"
	dim   style = "2"
	red   style = "31"
	green style = "32"
	amber style = "33"
	blue  style = "36"
)

func (s screen) paint(st style, text string) string {
	if !s.color || st == plain || text == "" {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}
