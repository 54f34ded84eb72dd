package guard

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/reqlock/reqlock/keyfuncs"
)

func TestEncodeKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"order:42":      "order:42",
		"Ünïcode ✓":     "Ünïcode ✓",
		"{tag}":         "%7Btag%7D",
		"100%":          "100%25",
		"%7Btag%7D":     "%257Btag%257D",
		"a\x00b\nc\x7f": "a%00b%0Ac%7F",
		"\xff\xfe":      "%FF%FE",
		"\uFFFD":        "\uFFFD", // the replacement character itself is good UTF-8
		"a\xe2\x82b":    "a%E2%82b",
		// To a terminal, U+009B is the beginning of a command.
		"\u0085\u009b31m":        "%C2%85%C2%9B31m",
		"\u00a0\u00ad":           "\u00a0\u00ad",
		"\xed\xa0\x80":           "%ED%A0%80", // half of a surrogate pair
		"%sha256:00":             "%25sha256:00",
		"":                       "",
		strings.Repeat("x", 256): strings.Repeat("x", 256),
		strings.Repeat("{", 85):  strings.Repeat("%7B", 85),
	} {
		if got := encodeKey(key); got != want {
			t.Errorf("encodeKey(%q) = %q, want %q", key, got, want)
		}
	}
	if got := encodeKey(strings.Repeat("x", 257)); !strings.HasPrefix(got, "%sha256:") || len(got) != len("%sha256:")+64 {
		t.Errorf("a long key becomes %q; want a hash", got)
	}
	if got := encodeKey(strings.Repeat("{", 86)); !strings.HasPrefix(got, "%sha256:") {
		t.Errorf("a key that is long when it is encoded becomes %q; want a hash", got)
	}
	if a, b := strings.Repeat("{", 100), strings.Repeat("{", 101); encodeKey(a) == encodeKey(b) {
		t.Error("two long keys have one encoding")
	}
}

// Different keys stay different, and an encoded key is safe in the name of a lock.
func FuzzEncodeKey(f *testing.F) {
	for _, seed := range [][2]string{
		{"a", "a"}, {"{", "%7B"}, {"%", "%25"}, {"\xff", "%FF"}, {"%sha256:00", "x"}, {"\uFFFD", "\xef\xbf\xbd"}, {"\u0085", "\xc2\x85"},
		{strings.Repeat("y", 300), strings.Repeat("y", 301)},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := encodeKey(a), encodeKey(b)
		if (a == b) != (x == y) {
			t.Errorf("%q and %q become %q and %q", a, b, x, y)
		}
		if len(x) > maxKeyLen || !utf8.ValidString(x) || strings.ContainsAny(x, "{}") || strings.ContainsFunc(x, unicode.IsControl) {
			t.Errorf("%q becomes %q", a, x)
		}
	})
}

func TestExact(t *testing.T) {
	t.Parallel()
	if got := Exact("order:42"); got != "order:42" {
		t.Errorf("Exact = %q", got)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	g := &Guard{cfg: Config{Key: keyfuncs.Const("k")}.withDefaults()}
	got := g.names([]string{"b", "a", "{b}", "b"}, 0)
	if want := []string{"reqlock:%7Bb%7D", "reqlock:a", "reqlock:b"}; !slices.Equal(got, want) {
		t.Errorf("names = %q, want %q", got, want)
	}
	got = g.names([]string{"b", "a", "{b}", "b"}, 12)
	if want := []string{"reqlock:%limit:12:%7Bb%7D", "reqlock:%limit:12:a", "reqlock:%limit:12:b"}; !slices.Equal(got, want) {
		t.Errorf("names of limits = %q, want %q", got, want)
	}
	// A client may choose the key of a lock.
	if lock, limit := g.names([]string{"%limit:12:a"}, 0), g.names([]string{"a"}, 12); slices.Equal(lock, limit) {
		t.Errorf("a lock and a limit are both named %q", lock)
	}
	g = &Guard{cfg: Config{Key: keyfuncs.Const("k"), Name: func(string) string { return "one" }}.withDefaults()}
	if got := g.names([]string{"a", "b"}, 0); !slices.Equal(got, []string{"one"}) {
		t.Errorf("names that Config.Name makes equal: %q", got)
	}
}
