package keyfuncs

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
)

// A jsonText begins with a JSON value and goes on with whatever follows it in its document, which is known to be valid:
// nothing here looks for mistakes, and nothing recurses, however deep the document is nested.
type jsonText []byte

func (t jsonText) trim() jsonText { return bytes.TrimLeft(t, " \t\r\n") }

// end is the length of the value.
func (t jsonText) end() int {
	depth := 0
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case '"':
			i = t.endOfString(i) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ' ', '\t', '\r', '\n', ',', ':':
			continue
		default:
			i = t.endOfLiteral(i) - 1
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(t)
}

func (t jsonText) endOfString(start int) int {
	for i := start + 1; ; i++ {
		switch t[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

// endOfLiteral is for numbers, true, false and null.
func (t jsonText) endOfLiteral(start int) int {
	if n := bytes.IndexAny(t[start:], " \t\r\n,]}"); n >= 0 {
		return start + n
	}
	return len(t)
}

// members are those of an object, each value with all that follows it.
func (t jsonText) members() iter.Seq2[string, jsonText] {
	return func(yield func(string, jsonText) bool) {
		for rest := t[1:].trim(); rest[0] != '}'; rest = rest.next() {
			name := rest.end()
			value := rest[name:].trim()[1:].trim() // behind the colon
			if !yield(rest[:name].unquote(), value) {
				return
			}
			rest = value
		}
	}
}

// element returns the one of an array, with all that follows it; nil: there are not so many.
func (t jsonText) element(index int) jsonText {
	for rest := t[1:].trim(); rest[0] != ']'; rest = rest.next() {
		if index == 0 {
			return rest
		}
		index--
	}
	return nil
}

// next is what follows the value in its object or array: the next name or value, or the closing bracket.
func (t jsonText) next() jsonText {
	rest := t[t.end():].trim()
	if rest[0] == ',' {
		rest = rest[1:].trim()
	}
	return rest
}

// unquote decodes a string, of which t is all.
func (t jsonText) unquote() (s string) {
	if bytes.IndexByte(t, '\\') < 0 {
		return string(t[1 : len(t)-1])
	}
	_ = json.Unmarshal(t, &s) // it is a valid string
	return s
}

// hasLoneSurrogate looks for halves of \uD834\uDD1E in a valid document. Decoders replace them, each by something else.
func hasLoneSurrogate(document []byte) bool {
	for i := bytes.IndexByte(document, '\\'); i >= 0; {
		size := 2
		if r := escapedRune(document[i:]); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escapedRune(document[i+6:])) == '\uFFFD' {
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

// escapedRune is the number in a \uXXXX that t begins with; -1: it does not.
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

const (
	maxDigits         = 100 // of a number written out
	maxFractionDigits = 15  // significant ones; two numbers of so many are never one float64
)

// canonicalNumber writes a JSON number as a plain decimal: no exponent, no leading and trailing zeros, no minus before zero.
// It is not ok if that takes too many digits.
func canonicalNumber(number string) (string, bool) {
	digits, sign := number, ""
	if digits[0] == '-' {
		digits, sign = digits[1:], "-"
	}
	exponent := "0"
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		digits, exponent = digits[:i], digits[i+1:]
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", true
	}
	scale, err := strconv.Atoi(exponent)
	if err != nil || scale < -len(number)-maxDigits || scale > len(number)+maxDigits {
		return "", false // no zeros in the number make up for it
	}
	scale -= len(fraction) // the number is digits * 10^scale
	trimmed := strings.TrimRight(digits, "0")
	scale += len(digits) - len(trimmed)
	digits = trimmed

	point := len(digits) + scale // where it goes, counted from the first digit
	switch {
	case max(point, len(digits), -scale) > maxDigits, scale < 0 && len(digits) > maxFractionDigits:
		return "", false
	case scale >= 0:
		return sign + digits + strings.Repeat("0", scale), true
	case point <= 0:
		return sign + "0." + strings.Repeat("0", -point) + digits, true
	}
	return sign + digits[:point] + "." + digits[point:], true
}
