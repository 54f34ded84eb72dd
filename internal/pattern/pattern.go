// Package pattern reads the patterns of routes, of http.ServeMux and of other routers.
package pattern

import (
	"iter"
	"strings"
)

// Split returns the host and the path of a pattern, without its method.
func Split(pattern string) (host, path string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 && !strings.Contains(pattern[:i], "/") {
		pattern = strings.TrimLeft(pattern[i:], " \t")
	}
	slash := max(strings.IndexByte(pattern, '/'), 0)
	return pattern[:slash], pattern[slash:]
}

// A Wildcard is path[Start:End] of the path of a pattern.
type Wildcard struct {
	Name       string
	Start, End int
}

// Wildcards yields the wildcards of the path of a pattern: {name}, {name...} and {name:regexp}, or
// :name and *name, or * for the rest of the path, which Echo allows after a text as well (/files*).
// A colon begins a wildcard only in paths without braces: no pattern has both. Gin and Echo have \:
// for a colon that does not. {$} is no wildcard.
func Wildcards(path string) iter.Seq[Wildcard] {
	braces := strings.Contains(path, "{")
	return func(yield func(Wildcard) bool) {
		for i := 0; i < len(path); i++ {
			w := Wildcard{Start: i, End: i}
			switch rest := path[i:]; {
			case strings.HasPrefix(rest, `\:`):
				i++
			case rest[0] == '{':
				w.End += afterBrace(rest)
				w.Name, _, _ = strings.Cut(strings.Trim(path[i:w.End], "{}"), ":")
				w.Name = strings.TrimSuffix(w.Name, "...")
			case rest[0] == '*', rest[0] == ':' && !braces:
				segment, _, _ := strings.Cut(rest, "/")
				w.End += len(segment)
				w.Name = segment[1:]
				if segment == "*" {
					w.Name = "*"
				}
			}
			if w.End == w.Start || w.Name == "$" {
				continue
			}
			if !yield(w) {
				return
			}
			i = w.End - 1
		}
	}
}

// afterBrace returns the index after the brace that closes the first one; 0: none does. A regular
// expression in between may have its own braces.
func afterBrace(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
