package idempotency

import (
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/keyfuncs"
)

// maxKeyLen is the limit of most services with idempotency keys.
const maxKeyLen = 255

// key returns the key of a request. "", nil: there is none, and it is optional.
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
	if !c.KeyUUID {
		return key, nil
	}
	id, err := keyfuncs.UUID(func(*http.Request) (string, error) { return key, nil })(r)
	if err != nil {
		return "", c.keyInvalid("must be a UUID")
	}
	return id, nil
}

func (c *Config) keyInvalid(why string) error {
	return newError(keyInvalid, "The header "+c.Header+" "+why+".", nil)
}

// parseKey parses a String of RFC 9651 or, unless strict, a bare key; both forms of a key are
// equal. why explains an invalid value; "": it is valid.
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
		return "", "must be in double quotes"
	case strings.Contains(value, `"`):
		return "", "contains a quote but does not begin with one"
	default:
		key = value
	}
	switch {
	case key == "":
		return "", "is empty"
	case len(key) > maxKeyLen:
		return "", "is longer than 255 characters"
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", "contains characters other than visible ASCII"
	}
	return key, ""
}

// unquote decodes a String of RFC 9651, which begins with a quote. It refuses parameters after it:
// they might make it another key.
func unquote(value string) (key, why string) {
	var b strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; c {
		case '"':
			if i != len(value)-1 {
				return "", "continues after its closing quote"
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
