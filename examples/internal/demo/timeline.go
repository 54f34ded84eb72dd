package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// column is the duration of one character of the timeline.
const column = 50 * time.Millisecond

// Legend explains the characters of a timeline.
var Legend = fmt.Sprintf("  . waits   # runs   x is refused   (one for %s)", column)

// Show prints the timeline, one line per request.
func Show(requests []*Request) {
	columns := func(d time.Duration) int { return int(d.Round(column) / column) }
	bars, bar, what := make([]string, len(requests)), 0, 0
	for i, r := range requests {
		bars[i] = strings.Repeat(" ", columns(r.After)) + strings.Repeat(".", columns(r.Waited)) + strings.Repeat("#", columns(r.Ran))
		if r.Refused() {
			bars[i] += "x"
		}
		bar, what = max(bar, len(bars[i])), max(what, utf8.RuneCountInString(r.What))
	}
	fmt.Println()
	for i, r := range requests {
		fmt.Printf("  %s  %-*s  %-*s  %d  ", r.Name, what, r.What, bar, bars[i], r.Answer.StatusCode)
		if r.Refused() {
			fmt.Printf("refused after %dms\n", r.Waited.Milliseconds())
		} else {
			fmt.Printf("waited %4dms, ran %dms\n", r.Waited.Milliseconds(), r.Ran.Milliseconds())
		}
	}
}

// Quote prints an answer in full.
func Quote(r *Request) {
	fmt.Printf("\n  What %s got:\n\n    %s %s\n", r.Name, r.Answer.Proto, r.Answer.Status)
	for _, header := range []string{"Retry-After", "Content-Type", "Cache-Control"} {
		if value := r.Answer.Header.Get(header); value != "" {
			fmt.Printf("    %s: %s\n", header, value)
		}
	}
	var indented bytes.Buffer
	if json.Indent(&indented, r.Body, "    ", "  ") != nil {
		indented.Write(r.Body) // not JSON: print it as it is
	}
	fmt.Printf("\n    %s\n", indented.Bytes())
}
