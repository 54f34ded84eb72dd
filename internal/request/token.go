package request

import "strings"

// TokenMarks are the characters that a token has besides letters and digits.
const TokenMarks = "!#$%&'*+-.^_`|~"

// IsToken reports whether s is what RFC 9110 calls a token: the name of a header, or a
// method.
func IsToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(TokenMarks, c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
