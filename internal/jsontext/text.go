// Package jsontext reads JSON without decoding it: Find returns the value at a JSON pointer, for
// keys, and Digests sums up values, for fingerprints. Both refuse names that encoding/json may take
// for one another. The package never recurses, however deep a document is nested.
package jsontext

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Valid reports whether a document is JSON in UTF-8 without lone surrogates, which decoders replace
// in different ways. The rest of this package relies on it.
func Valid(document []byte) bool {
	return json.Valid(document) && utf8.Valid(document) && !hasLoneSurrogate(document)
}

// hasLoneSurrogate looks for halves of \uD834\uDD1E.
func hasLoneSurrogate(document []byte) bool {
	for i := bytes.IndexByte(document, '\\'); i >= 0; {
		size := 2
		if r := escapedRune(document[i:]); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escapedRune(document[i+6:])) == utf8.RuneError {
				return true
			}
			size = 12
		}
		next := bytes.IndexByte(document[i+size:], '\\')
		if next < 0 {
			return false
		}
		i += size + next
	}
	return false
}

// escapedRune returns the number in the \uXXXX that t begins with; -1: t does not.
func escapedRune(t []byte) rune {
	if !bytes.HasPrefix(t, []byte(`\u`)) || len(t) < 6 {
		return -1
	}
	n, err := strconv.ParseUint(string(t[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// appendUnquoted decodes the text between the quotes of a string, and appends it to dst.
func appendUnquoted(dst, text []byte) []byte {
	dst = slices.Grow(dst, len(text)) // no escape is shorter than what it stands for
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		text = text[i:]
		size := 2
		switch c := text[1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := escapedRune(text)
			size = 6
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, escapedRune(text[6:]))
				size = 12
			}
			dst = utf8.AppendRune(dst, r)
		default: // a quote, a slash or a backslash
			dst = append(dst, c)
		}
		text = text[size:]
	}
}

// A Text is the rest of a document from a JSON value on.
type Text []byte

// Trim removes white space before the value.
func (t Text) Trim() Text { return bytes.TrimLeft(t, " \t\r\n") }

// End returns the length of the value.
func (t Text) End() int {
	depth := 0
	for start, end := t.nextToken(0); start < len(t); start, end = t.nextToken(end) {
		switch t[start] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth == 0 {
			return end
		}
	}
	return len(t)
}

// nextToken returns where the first token from i on starts and ends: a bracket, a string with its
// quotes, a number, true, false or null. start is len(t) if there is none.
func (t Text) nextToken(i int) (start, end int) {
	for i < len(t) && (isSpace(t[i]) || t[i] == ',' || t[i] == ':') {
		i++
	}
	if i == len(t) {
		return i, i
	}
	switch t[i] {
	case '{', '[', '}', ']':
		return i, i + 1
	case '"':
		return i, t.endOfString(i)
	}
	return i, t.endOfLiteral(i)
}

func (t Text) endOfString(start int) int {
	for i := start + 1; ; i++ {
		switch t[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

func (t Text) endOfLiteral(start int) int {
	for i := start; i < len(t); i++ {
		if c := t[i]; isSpace(c) || c == ',' || c == ']' || c == '}' {
			return i
		}
	}
	return len(t)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// members yields the names and values of an object, each value with all that follows it.
func (t Text) members() iter.Seq2[[]byte, Text] {
	return func(yield func([]byte, Text) bool) {
		for rest := t[1:].Trim(); rest[0] != '}'; rest = rest.next() {
			name := rest.End()
			value := rest[name:].Trim()[1:].Trim() // The value is after the colon.
			if !yield(rest.Unquote(), value) {
				return
			}
			rest = value
		}
	}
}

// element returns an element of an array, with all that follows it; nil: the array is shorter.
func (t Text) element(index int) Text {
	for rest := t[1:].Trim(); rest[0] != ']'; rest = rest.next() {
		if index == 0 {
			return rest
		}
		index--
	}
	return nil
}

// next returns what follows the value in its object or array: the next name or value, or the
// closing bracket.
func (t Text) next() Text {
	rest := t[t.End():].Trim()
	if rest[0] == ',' {
		rest = rest[1:].Trim()
	}
	return rest
}

// Unquote decodes the value, which is a string. The result may share the memory of t.
func (t Text) Unquote() []byte {
	text := t[1 : t.endOfString(0)-1]
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	return appendUnquoted(nil, text)
}
