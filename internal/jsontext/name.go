package jsontext

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// SameName reports whether encoding/json takes one name of a member for the other: it ignores case.
func SameName(a, b []byte) bool { return bytes.EqualFold(a, b) }

// HashName returns a FNV-1a hash of a name, which is equal for all names that SameName takes for each
// other.
func HashName(name []byte) uint64 {
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
