package guard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Exact is a Config.Name that uses the key as the lock's name, so that other programs, Redisson
// among them, can share the lock. Characters and length are changed as described at Config.Key.
func Exact(key string) string { return key }

// maxKeyLen is the longest encoded key, in bytes; beyond it, the hash of the key is used.
const maxKeyLen = 256

// encodeKey makes the key of a request safe as a part of a Redis key. Different keys stay
// different. Braces would choose the cluster slot, and control characters and invalid UTF-8 would
// garble logs: they become %XX, and so does the percent sign. A key that is too long becomes its
// hash after "%s", which no encoded key contains.
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
			size = 1 // an invalid byte
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
