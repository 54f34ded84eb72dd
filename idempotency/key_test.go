package idempotency

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/guard"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", maxKeyLen)
	for _, test := range []struct {
		value, key   string
		strict, bare bool // taken in these modes
	}{
		{`abc`, "abc", false, true},
		{`"abc"`, "abc", true, true},
		{" \t\"abc\"\t ", "abc", true, true},
		{`"a\"b"`, `a"b`, true, true},
		{`"a\\b"`, `a\b`, true, true},
		{`a\b`, `a\b`, false, true},
		{"'abc'", "'abc'", false, true},
		{"?1", "?1", false, true},
		{":YWJj:", ":YWJj:", false, true},
		{long, long, false, true},
		{`"` + long + `"`, long, true, true},
		{`"` + strings.Repeat(`\"`, maxKeyLen) + `"`, strings.Repeat(`"`, maxKeyLen), true, true},
		{value: ""}, {value: " "}, {value: `""`}, {value: `"`}, {value: `"abc`}, {value: `abc"`}, {value: `a"b"`},
		{value: `"abc"d`}, {value: `"abc" "def"`}, {value: `"abc", "def"`}, {value: `"abc";a`}, {value: `"abc";a=1`},
		{value: `"a\bc"`}, {value: `"abc\"`}, {value: `"abc\`}, {value: `"a b"`}, {value: "a b"}, {value: "a\tb"},
		{value: "a\x00b"}, {value: "\"a\x00b\""}, {value: "a\x7fb"}, {value: "a\x80"}, {value: "é"}, {value: `"é"`},
		{value: long + "k"}, {value: `"` + long + `k"`},
	} {
		for _, strict := range []bool{false, true} {
			taken := test.bare && !strict || test.strict && strict
			key, why := parseKey(test.value, strict)
			if taken && (key != test.key || why != "") || !taken && (key != "" || why == "") {
				t.Errorf("parseKey(%.40q, %v) = %.40q, %q", test.value, strict, key, why)
			}
		}
	}
}

// A key has 1 to 255 visible characters, and its quoted form is the same key.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"abc", `"abc"`, `"a\"b\\"`, `"`, "", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, why := parseKey(value, false)
		if (key == "") == (why == "") {
			t.Fatalf("%q: key %q, why %q", value, key, why)
		}
		if key == "" {
			return
		}
		if len(key) > maxKeyLen || strings.Trim(key, visible) != "" {
			t.Errorf("%q gives %q", value, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, why := parseKey(quoted, true); again != key {
			t.Errorf("%q gives %q (%s), want %q", quoted, again, why, key)
		}
	})
}

var visible = func() string {
	var b strings.Builder
	for c := byte('!'); c <= '~'; c++ {
		b.WriteByte(c)
	}
	return b.String()
}()

// With KeyUUID, all spellings of a UUID are one key, and no other text is one.
func TestKeyUUID(t *testing.T) {
	t.Parallel()
	cfg := Config{Header: defaultHeader, KeyUUID: true}
	for value, want := range map[string]string{
		"8E03978E-40D5-43DD-BC93-6894A57F9324":          "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`:        "8e03978e-40d5-43dd-bc93-6894a57f9324",
		"urn:uuid:8e03978e-40d5-43dd-bc93-6894a57f9324": "8e03978e-40d5-43dd-bc93-6894a57f9324",
		"{8e03978e40d543ddbc936894a57f9324}":            "",
		"8e03978e40d543ddbc936894a57f9324":              "8e03978e-40d5-43dd-bc93-6894a57f9324",
		"order-42":                                      "",
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(defaultHeader, value)
		key, err := cfg.key(r)
		if key != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", value, key, err, want)
		}
		if refused := (*guard.Error)(nil); want == "" && (!errors.As(err, &refused) || !strings.Contains(refused.Detail, "must be a UUID")) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
