package guard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Exact is a Config.Name that takes the key as the lock's name, so that other programs, Redisson among them, can share the
// lock. What is said at Config.Key about characters and length holds all the same.
func Exact(key string) string { return key }

// maxKeyLen is the length of an encoded key, in bytes, beyond which its hash is used.
const maxKeyLen = 256

// encodeKey makes a key that came from a request safe as a part of a Redis key. Two keys never become one. Braces would
// choose the cluster slot; control characters and broken UTF-8 would garble what operators read; they become %XX, and so does
// the percent sign itself. Over-long keys become a hash, behind a percent sign that no encoded key has.
func encodeKey(key string) string {
	clean := true
	for i := 0; i < len(key) && clean; i++ {
		clean = plain(key[i]) && key[i] < utf8.RuneSelf
	}
	encoded := key
	if !clean {
		encoded = percentEncode(key)
	}
	if len(encoded) > maxKeyLen {
		sum := sha256.Sum256([]byte(key))
		return "%sha256:" + hex.EncodeToString(sum[:])
	}
	return encoded
}

func plain(b byte) bool {
	return b >= ' ' && b != 0x7f && b != '{' && b != '}' && b != '%'
}

func percentEncode(key string) string {
	var b strings.Builder
	for i, r := range key {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError && !strings.HasPrefix(key[i:], string(utf8.RuneError)) {
			size = 1 // a byte that is no UTF-8
		}
		for _, c := range []byte(key[i : i+size]) {
			if plain(c) && (size > 1 || c < utf8.RuneSelf) && !unicode.IsControl(r) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
	}
	return b.String()
}
