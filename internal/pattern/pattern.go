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

// UnknownPath is the key, in a context, of the URL whose path has no canonical form, because the
// router ignores a part of its spelling, and has not matched the route that will answer.
type UnknownPath struct{}

// A Wildcard is path[Start:End] of the path of a pattern.
type Wildcard struct {
	Name string
	// Short is Name up to its first dash or dot, if Fiber may end it there. Gin and Echo do not.
	Short      string
	Start, End int
}

// Wildcards yields the wildcards of the path of a pattern: {name}, {name...} and {name:regexp}, or
// :name and *name, or * for the rest of the path, which Echo allows after a text as well (/files*).
// A colon begins a wildcard only in paths without braces: no pattern has both. Gin and Echo have \:
// for a colon that does not. {$} is no wildcard. Fiber also has :name? and :name<constraint>, whose
// constraint may have braces and slashes, several names in a segment, such as :from-:to, and + for
// the rest of the path, as a segment here.
func Wildcards(path string) iter.Seq[Wildcard] {
	braces := hasBraces(path)
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
			case rest[0] == '*':
				segment, _, _ := strings.Cut(rest, "/")
				w.End += len(segment)
				w.Name = segment[1:]
				if segment == "*" {
					w.Name = "*"
				}
			case (rest == "+" || strings.HasPrefix(rest, "+/")) && i > 0 && path[i-1] == '/':
				w.End++
				w.Name = "+"
			case strings.HasPrefix(rest, "::"):
				// The first colon is text in Fiber.
			case rest[0] == ':' && !braces:
				var length int
				w.Name, w.Short, length = colon(rest)
				w.End += length
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

// colon returns the names and the length of the wildcard with whose colon path begins.
func colon(path string) (name, short string, length int) {
	// These characters end a name in Fiber.
	const ends = `/?:\-.`
	length = 1 + before(path[1:], ends+"<")
	short = path[1:length]
	constraint := afterConstraint(path[length:])
	if length += constraint; constraint > 0 {
		length += before(path[length:], ends)
	}
	optional := strings.HasPrefix(path[length:], "?")
	if optional {
		length++
	}
	rest := path[length:]
	rest = rest[:before(rest, "/")]
	if rest == "" || constraint > 0 || optional || strings.ContainsAny(rest, `?:\`) { // only Fiber has these
		return short, "", length
	}
	return short + rest, short, length + len(rest)
}

// before returns the index of the first of chars in s; len(s): it has none.
func before(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// hasBraces reports whether a path has braces outside the constraints of Fiber.
func hasBraces(path string) bool {
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '{':
			return true
		case '<':
			i += max(afterConstraint(path[i:])-1, 0)
		}
	}
	return false
}

// afterConstraint returns the index after the constraint of Fiber with which s begins; 0: there is
// none.
func afterConstraint(s string) int {
	if !strings.HasPrefix(s, "<") {
		return 0
	}
	for i := 1; i < len(s); i++ {
		if s[i] == '>' && s[i-1] != '\\' {
			return i + 1
		}
	}
	return 0
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
