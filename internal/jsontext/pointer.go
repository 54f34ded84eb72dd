package jsontext

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Token is one step of a JSON pointer: to a member of an object or, unless Index is -1, to an
// element of an array.
type Token struct {
	Name  []byte
	Index int
}

// ParsePointer parses a JSON pointer, RFC 6901. problem explains an invalid one, and names a valid
// form; "": the pointer is valid.
func ParsePointer(pointer string) (path []Token, problem string) {
	switch {
	case pointer == "":
		return nil, ""
	case pointer[0] != '/':
		return nil, `not a JSON pointer; want one that begins with a slash, such as "/order/id", or the empty one`
	case strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(pointer), "~"):
		return nil, "not a JSON pointer; want ~0 for a tilde and ~1 for a slash in a name"
	case !utf8.ValidString(pointer):
		return nil, "not a JSON pointer; want valid UTF-8"
	}
	unescape := strings.NewReplacer("~0", "~", "~1", "/")
	for token := range strings.SplitSeq(pointer[1:], "/") {
		name := unescape.Replace(token)
		path = append(path, Token{Name: []byte(name), Index: parseIndex(name)})
	}
	return path, ""
}

// parseIndex parses an index of RFC 6901, which has no leading zeros; -1: s is not one.
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

// The errors of Find.
var (
	ErrMissing   = errors.New("there is no value")
	ErrMisplaced = errors.New("there is a scalar, or an array and no index, on the way to the value")
	ErrAmbiguous = errors.New("a name on the way to the value is given more than once or in another case")
)

// Find returns the value at a pointer in the value, with all that follows it.
func (t Text) Find(pointer []Token) (Text, error) {
	for _, token := range pointer {
		switch t[0] {
		case '{':
			value, err := t.member(token.Name)
			if err != nil {
				return nil, err
			}
			t = value
		case '[':
			if token.Index < 0 {
				return nil, ErrMisplaced
			}
			t = t.element(token.Index)
		case 'n':
			return nil, ErrMissing
		default:
			return nil, ErrMisplaced
		}
		if t == nil {
			return nil, ErrMissing
		}
	}
	return t, nil
}

// member returns a member of an object; nil: it has no such member.
func (t Text) member(name []byte) (found Text, err error) {
	for other, value := range t.members() {
		if !sameName(name, other) {
			continue
		}
		if found != nil || !bytes.Equal(name, other) {
			return nil, ErrAmbiguous
		}
		found = value
	}
	return found, nil
}
