package keyfuncs

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unescape decodes the percent escapes in s, then those in the result, until none is left. chi,
// Echo and Gin's UseRawPath hand over %34%32 both for /u/%34%32, as it was sent, and for
// /u/%2534%2532, decoded. A key may depend only on what the handler sees, so a value cannot be
// decoded by what its URL looked like. Decoded to the end, all spellings of a URL have one result.
//
// Control characters and bytes that are not UTF-8 stay escaped, so the result is text.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	plain := make([]byte, 0, len(s))
	for i := range len(s) {
		plain = append(plain, s[i])
		for { // the byte that an escape stands for may complete another
			n := len(plain)
			if n < 3 || plain[n-3] != '%' || !isHex(plain[n-2]) || !isHex(plain[n-1]) {
				break
			}
			plain = append(plain[:n-3], hexValue(plain[n-2])<<4|hexValue(plain[n-1]))
		}
	}
	return escapeControls(string(plain))
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&0xf + 9
}

// escapeControls writes control characters, and bytes that are not UTF-8, as %XX.
func escapeControls(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	var text strings.Builder
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		if unicode.IsControl(r) || r == utf8.RuneError && size == 1 {
			for i := range size {
				fmt.Fprintf(&text, "%%%02X", s[i])
			}
		} else {
			text.WriteString(s[:size])
		}
		s = s[size:]
	}
	return text.String()
}
