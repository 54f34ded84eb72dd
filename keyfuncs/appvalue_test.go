package keyfuncs

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestValue(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]answer{
		nil:                              {kind: ErrMissing, text: "session user is missing"},
		"":                               {kind: ErrMissing, text: "session user is empty"},
		"u\n":                            {kind: ErrInvalid, text: "session user has control characters in it"},
		"u-42":                           {key: "u-42"},
		42:                               {key: "42"},
		int8(-8):                         {key: "-8"},
		int16(16):                        {key: "16"},
		int32(32):                        {key: "32"},
		int64(math.MinInt64):             {key: "-9223372036854775808"},
		uint(1):                          {key: "1"},
		uint8(8):                         {key: "8"},
		uint16(16):                       {key: "16"},
		uint32(32):                       {key: "32"},
		uint64(math.MaxUint64):           {key: "18446744073709551615"},
		netip.MustParseAddr("192.0.2.1"): {key: "192.0.2.1"},
	} {
		key, err := Value("session user", func(*http.Request) any { return value })(get("/"))
		want.check(t, key, err)
		if detail, ok := Detail(err); ok {
			t.Errorf("%v: clients see %q", value, detail)
		}
	}
}

func TestClaim(t *testing.T) {
	t.Parallel()
	const token = `{"sub": "u-42", "n": 7, "zero": 0, "minus": -7, "big": 9007199254740991, "huge": 9007199254740993,
		"half": 0.5, "none": null, "empty": "", "yes": true, "list": ["a"], "line": "a\nb",
		"tenant": {"id": 12, "name": {"short": "acme"}}, "https://x.example/a.b": "dotted"}`
	invalid := func(name string) answer {
		return answer{kind: ErrInvalid, text: fmt.Sprintf("claim %q is neither a string nor a whole number within 2^53", name)}
	}
	missing := func(name string) answer {
		return answer{kind: ErrMissing, text: fmt.Sprintf("claim %q is missing", name)}
	}
	for path, want := range map[string]answer{
		"sub":                   {key: "u-42"},
		"n":                     {key: "7"},
		"zero":                  {key: "0"},
		"minus":                 {key: "-7"},
		"big":                   {key: "9007199254740991"},
		"half":                  invalid("half"),
		"yes":                   invalid("yes"),
		"list":                  invalid("list"),
		"tenant":                invalid("tenant"),
		"none":                  missing("none"),
		"other":                 missing("other"),
		"sub id":                missing("sub.id"),
		"tenant other":          missing("tenant.other"),
		"empty":                 {kind: ErrMissing, text: `claim "empty" is empty`},
		"line":                  {kind: ErrInvalid, text: `claim "line" has control characters in it`},
		"tenant id":             {key: "12"},
		"tenant name short":     {key: "acme"},
		"https://x.example/a.b": {key: "dotted"},
	} {
		for _, exact := range []bool{false, true} {
			in := json.NewDecoder(strings.NewReader(token))
			if exact {
				in.UseNumber()
			}
			var claims map[string]any
			if err := in.Decode(&claims); err != nil {
				t.Fatal(err)
			}
			key, err := Claim(func(*http.Request) map[string]any { return claims }, strings.Fields(path)...)(get("/"))
			want.check(t, key, err)
			if detail, ok := Detail(err); ok {
				t.Errorf("%s: clients see %q", path, detail)
			}
		}
	}
}

// Two numbers that a float64 cannot tell apart are not one key. An exact decoder tells them apart.
func TestClaim_HugeNumbers(t *testing.T) {
	t.Parallel()
	give := func(n any) (string, error) {
		return Claim(func(*http.Request) map[string]any { return map[string]any{"id": n} }, "id")(get("/"))
	}
	for _, n := range []float64{1 << 53, -(1 << 53), 1e300, math.Inf(1), math.NaN()} {
		key, err := give(n)
		answer{kind: ErrInvalid, text: `claim "id" is neither a string nor a whole number within 2^53`}.check(t, key, err)
	}
	for number, want := range map[json.Number]string{"9007199254740993": "9007199254740993", "1e3": "1000", "7.0": "7"} {
		key, err := give(number)
		answer{key: want}.check(t, key, err)
	}
}

func TestClaim_NoToken(t *testing.T) {
	t.Parallel()
	key, err := Claim(func(*http.Request) map[string]any { return nil }, "sub")(get("/"))
	answer{kind: ErrMissing, text: `claim "sub" is missing`}.check(t, key, err)
}
