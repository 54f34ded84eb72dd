package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// printable returns a text that cannot change what a terminal shows: names of locks may contain
// anything, also from requests.
func printable(s string) string {
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, bad) {
		return strconv.Quote(s)
	}
	return s
}

// ago returns a duration in ms with one or two units: 250ms, 29s, 4m59s, 2h5m, 3d4h.
func short(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d < 0 {
		return "-" + short(-ms)
	}
	two := func(big int64, bigUnit string, small int64, smallUnit string) string {
		if small == 0 {
			return fmt.Sprint(big, bigUnit)
		}
		return fmt.Sprint(big, bigUnit, small, smallUnit)
	}
	switch s := int64(d / time.Second); {
	case d < time.Second:
		return fmt.Sprint(ms, "ms")
	case d < time.Minute:
		return fmt.Sprint(s, "s")
	case d < time.Hour:
		return two(s/60, "m", s%60, "s")
	case d < 48*time.Hour:
		return two(s/3600, "h", s/60%60, "m")
	default:
		return two(s/86400, "d", s/3600%24, "h")
	}
}

// bytes returns a size: 812 B, 3.4 KiB, 1.0 MiB.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprint(n, " B")
	}
	f, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f /= 1024; f < 1024 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// count returns a number with a noun: 1 client, 2 clients.
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n, " ", noun, "s")
}

// A cell is one field of a table.
type cell struct {
	text  string
	style style
}

// A table is rows of aligned columns. The first row is the heading.
type table struct {
	rows [][]cell
	// shrink lists the columns that lose text if the screen is too narrow, first those that lose it
	// first. A column may be there again with a smaller width.
	shrink []shrink
}

// A shrink makes a column narrower, down to a width.
type shrink struct{ column, to int }

func (t *table) head(names ...string) {
	row := make([]cell, len(names))
	for i, name := range names {
		row[i] = cell{name, bold}
	}
	t.rows = append(t.rows, row)
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// lines returns the table in lines of at most so many columns; 0: unlimited.
func (t *table) lines(s screen, columns int) []string {
	widths := t.widths(columns)
	lines := make([]string, len(t.rows))
	for i, row := range t.rows {
		var b strings.Builder
		for j, c := range row {
			text := cut(c.text, widths[j])
			b.WriteString(s.paint(c.style, text))
			if j < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[j]-runewidth.StringWidth(text)+gap))
			}
		}
		lines[i] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

const (
	gap       = 2
	narrowest = 8 // a column that shrinks
)

func (t *table) widths(columns int) []int {
	var widths []int
	for _, row := range t.rows {
		for j, c := range row {
			if j == len(widths) {
				widths = append(widths, 0)
			}
			widths[j] = max(widths[j], runewidth.StringWidth(c.text))
		}
	}
	if columns == 0 {
		return widths
	}
	over := gap*(len(widths)-1) - columns
	for _, w := range widths {
		over += w
	}
	for _, s := range t.shrink {
		if by := min(over, widths[s.column]-s.to); by > 0 {
			widths[s.column] -= by
			over -= by
		}
	}
	return widths
}

// cut shortens a text to so many columns, in its middle, because names differ at their ends.
func cut(s string, most int) string {
	if runewidth.StringWidth(s) <= most {
		return s
	}
	head := runewidth.Truncate(s, (most+1)/2, "…")
	return head + runewidth.TruncatePrefix(s, most-runewidth.StringWidth(head), "")
}

// orDash returns a dash for an empty text.
func orDash(s string) string { return cmp.Or(s, "-") }
