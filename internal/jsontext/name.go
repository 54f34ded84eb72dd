package jsontext

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// sameName reports whether encoding/json takes two names of members for one: it ignores case.
func sameName(a, b []byte) bool { return bytes.EqualFold(a, b) }

// hashName returns a FNV-1a hash of a name, which is equal for all names that sameName takes for
// each other.
func hashName(name []byte) uint64 {
	hash := uint64(14695981039346656037)
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		name = name[size:]
		hash = (hash ^ uint64(foldRune(r))) * 1099511628211
	}
	return hash
}

// foldRune returns the same rune for all that differ only in case: 'K' for 'k'.
func foldRune(r rune) rune {
	if r < utf8.RuneSelf {
		if 'a' <= r && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}
	for {
		next := unicode.SimpleFold(r)
		if next <= r { // the orbit begins again with its smallest rune
			return next
		}
		r = next
	}
}
