package adaptertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// A table holds the result of every test in every framework.
type table struct {
	rows, columns []string

	mu sync.Mutex
	// cells has each cell under its row and column. That of an exception is the number of its reason.
	cells   map[[2]string]string
	reasons []string
}

func newTable(scenarios []scenario, adapters []Adapter) *table {
	results := &table{cells: make(map[[2]string]string)}
	for _, s := range scenarios {
		results.rows = append(results.rows, s.name)
	}
	for _, a := range adapters {
		results.columns = append(results.columns, a.Name)
	}
	return results
}

// enter records the result of a test that has ended.
func (results *table) enter(row, column string, t *testing.T) {
	results.mu.Lock()
	defer results.mu.Unlock()
	switch cell := [2]string{row, column}; {
	case t.Skipped(): // leaves a hole
	case t.Failed():
		results.cells[cell] = "FAILS"
	default:
		results.cells[cell] = "holds"
	}
}

// except records that a test cannot hold, and why. Equal reasons have one number.
func (results *table) except(row, column, reason string) {
	results.mu.Lock()
	defer results.mu.Unlock()
	i := slices.Index(results.reasons, reason)
	if i < 0 {
		i = len(results.reasons)
		results.reasons = append(results.reasons, reason)
	}
	results.cells[[2]string{row, column}] = fmt.Sprintf("no (%d)", i+1)
}

// hole names the first missing result; "": there is none.
func (results *table) hole() string {
	results.mu.Lock()
	defer results.mu.Unlock()
	for _, row := range results.rows {
		for _, column := range results.columns {
			if results.cells[[2]string{row, column}] == "" {
				return fmt.Sprintf("%q in %s", row, column)
			}
		}
	}
	return ""
}

func (results *table) String() string {
	results.mu.Lock()
	defer results.mu.Unlock()
	width := 0
	for _, row := range results.rows {
		width = max(width, utf8.RuneCountInString(row))
	}
	var text strings.Builder
	line := func(row string, cell func(column string) string) {
		fmt.Fprintf(&text, "%-*s", width, row)
		for _, column := range results.columns {
			fmt.Fprintf(&text, "  %-8s", cell(column))
		}
		text.WriteByte('\n')
	}
	line("", func(column string) string { return column })
	for _, row := range results.rows {
		line(row, func(column string) string { return results.cells[[2]string{row, column}] })
	}
	for i, reason := range results.reasons {
		fmt.Fprintf(&text, "\n(%d) %s", i+1, reason)
	}
	return text.String()
}
