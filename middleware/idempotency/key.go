package idempotency

import (
	"net/http"
	"strings"
)

// maxKeyLen is what most services that take such keys agree on.
const maxKeyLen = 255

// key reads the key of a request. "", nil: there is none, and none is needed.
func (c *Config) key(r *http.Request) (string, error) {
	values := r.Header[c.Header]
	switch {
	case len(values) == 0 && c.Optional:
		return "", nil
	case len(values) == 0:
		return "", newError(keyMissing, "The header "+c.Header+" is required here.", nil)
	case len(values) > 1:
		return "", c.keyInvalid("is given more than once")
	}
	key, why := parseKey(values[0], c.Strict)
	if why != "" {
		return "", c.keyInvalid(why)
	}
	return key, nil
}

func (c *Config) keyInvalid(why string) error {
	return newError(keyInvalid, "The header "+c.Header+" "+why+".", nil)
}

// parseKey takes a String of RFC 9651, and unless strict a bare key; both forms of a key are one. why says what is wrong.
func parseKey(value string, strict bool) (key, why string) {
	value = strings.Trim(value, " \t")
	switch {
	case value == "":
		return "", "is empty"
	case value[0] == '"':
		if key, why = unquote(value); why != "" {
			return "", why
		}
	case strict:
		return "", "has to be in double quotes"
	case strings.Contains(value, `"`):
		return "", "has a quote within a key that does not begin with one"
	default:
		key = value
	}
	switch {
	case key == "":
		return "", "is empty"
	case len(key) > maxKeyLen:
		return "", "is longer than 255 characters"
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", "has characters in it other than visible ASCII"
	}
	return key, ""
}

// unquote decodes a String of RFC 9651, which begins with a quote. Parameters behind it are not taken: they might mean that it
// is another key.
func unquote(value string) (key, why string) {
	var b strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; c {
		case '"':
			if i != len(value)-1 {
				return "", "has something behind its closing quote"
			}
			return b.String(), ""
		case '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", "has a backslash that escapes neither a quote nor a backslash"
			}
			b.WriteByte(value[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "has no closing quote"
}
