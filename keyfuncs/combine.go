package keyfuncs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Const returns the same key for every request. Use it for one lock around a whole route, or in
// Join to keep the keys of one route apart from those of another. It panics if key is empty.
func Const(key string) Func {
	if key == "" {
		misuse(`Const("")`, "want a key that is not empty")
	}
	return func(*http.Request) (string, error) { return key, nil }
}

// allSet returns a copy of fns, because the caller's slice may change. It panics if one of them is
// nil.
func allSet(what string, fns []Func) []Func {
	for i, fn := range fns {
		if fn == nil {
			misuse(fmt.Sprintf("%s %d of %d", what, i+1, len(fns)), "nil; want a Func")
		}
	}
	return slices.Clone(fns)
}

const (
	separator = ':'
	escape    = '~'
)

// Join puts several parts into one key, with colons between them: "tenant1" and
// "42" become "tenant1:42". Different parts never give the same key, because a colon
// inside a part is written as "~:" and a tilde as "~~". A Join may be a part of
// another Join.
//
// Join calls the parts in order, and returns the first error: [ErrSkip] of one part
// skips the request, not the part.
//
// Join panics if it has no parts or if one of them is nil.
func Join(parts ...Func) Func {
	if len(parts) == 0 {
		misuse("Join()", "want at least one part")
	}
	parts = allSet("Join, part", parts)
	return func(r *http.Request) (string, error) {
		var room [128]byte // enough for most keys
		key := room[:0]
		for i, part := range parts {
			value, err := part(r)
			if err != nil {
				return "", err
			}
			if i > 0 {
				key = append(key, separator)
			}
			key = appendEscaped(key, value, separator)
		}
		return string(key), nil
	}
}

// appendEscaped appends a part and escapes each separator, end and escape in it. So the part ends
// at the first unescaped separator or end.
func appendEscaped(key []byte, part string, end byte) []byte {
	key = slices.Grow(key, len(part))
	for i := range len(part) {
		if c := part[i]; c == separator || c == escape || c == end {
			key = append(key, escape)
		}
		key = append(key, part[i])
	}
	return key
}

// Prefix puts a text before a key: Prefix("order:", PathValue("id")) makes "order:42".
// An empty prefix changes nothing. It panics if fn is nil.
func Prefix(prefix string, fn Func) Func {
	if fn == nil {
		misuse(fmt.Sprintf("Prefix(%q, nil)", prefix), "want a Func")
	}
	return func(r *http.Request) (string, error) {
		key, err := fn(r)
		if err != nil {
			return "", err
		}
		return prefix + key, nil
	}
}

// Hash replaces a key by its SHA-256, in 64 hexadecimal digits. Use it for long values,
// and for values that should not appear in Redis, its logs and its backups, such as a
// mail address or a token. It is not encryption: anyone who guesses a value can
// compute its hash. It panics if fn is nil.
func Hash(fn Func) Func {
	if fn == nil {
		misuse("Hash(nil)", "want a Func")
	}
	return func(r *http.Request) (string, error) {
		key, err := fn(r)
		if err != nil {
			return "", err
		}
		return hexSum([]byte(key)), nil
	}
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	var digits [2 * sha256.Size]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:])
}

// FirstOf returns the key of the first source that has one: it goes on after [ErrMissing], and
// returns any other error. If no source has a key, it returns ErrMissing.
//
// The key begins with the number of the source and a colon: "42" of the second one is "2:42". So a
// value of one source never passes for that of another: in FirstOf(Context(userKey),
// Header("X-Guest")), guest 42 does not get the key of user 42. In another order of the sources,
// all keys change.
//
// So FirstOf is wrong for two spellings of one thing that the handler treats alike, such as an id
// that may be in a header or in the query string: it would have two keys. Write a Func that reads
// it as the handler does.
//
// FirstOf panics if it has no sources or if one of them is nil.
func FirstOf(sources ...Func) Func {
	if len(sources) == 0 {
		misuse("FirstOf()", "want at least one source")
	}
	sources = allSet("FirstOf, source", sources)
	return func(r *http.Request) (string, error) {
		var missing []string
		for i, source := range sources {
			key, err := source(r)
			switch {
			case err != nil && !errors.Is(err, ErrMissing):
				return "", err
			case err == nil && key != "":
				return fmt.Sprintf("%d%c%s", i+1, separator, key), nil
			}
			detail, ok := Detail(err)
			if !ok {
				detail = fmt.Sprintf("source %d has no key", i+1)
			}
			missing = append(missing, detail)
		}
		return "", newError(ErrMissing, "%s", strings.Join(missing, "; "))
	}
}
