package keyfuncs

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A pointerToken names a member of an object, or an element of an array if it is an index; -1: it is none.
type pointerToken struct {
	name  string
	index int
}

func notAPointer(pointer string) (why string) {
	unescaped := strings.NewReplacer("~0", "", "~1", "").Replace(pointer)
	switch {
	case pointer != "" && pointer[0] != '/':
		return `not a JSON pointer; want one that begins with a slash, such as "/order/id", or the empty one`
	case strings.Contains(unescaped, "~"):
		return "not a JSON pointer; want ~0 for a tilde and ~1 for a slash in a name"
	case !utf8.ValidString(pointer):
		return "not a JSON pointer; want valid UTF-8"
	}
	return ""
}

func parsePointer(pointer string) (path []pointerToken) {
	if pointer == "" {
		return nil
	}
	unescape := strings.NewReplacer("~0", "~", "~1", "/")
	for token := range strings.SplitSeq(pointer[1:], "/") {
		name := unescape.Replace(token)
		path = append(path, pointerToken{name: name, index: parseIndex(name)})
	}
	return path
}

// parseIndex takes an index as RFC 6901 wants it, without leading zeros.
func parseIndex(s string) int {
	if s == "" || strings.Trim(s, "0123456789") != "" || len(s) > 1 && s[0] == '0' {
		return -1
	}
	index, err := strconv.Atoi(s)
	if err != nil { // out of range: no array has so many elements
		return math.MaxInt
	}
	return index
}
