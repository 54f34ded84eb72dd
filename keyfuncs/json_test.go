package keyfuncs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/internal/jsontext"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	missing, null, empty := answer{kind: ErrMissing, text: "is missing"}, answer{kind: ErrMissing, text: "is null"}, answer{kind: ErrMissing, text: "is empty"}
	ambiguous := answer{kind: ErrInvalid, text: "is ambiguous: a name in its path is given more than once or in another case"}
	misplaced := answer{kind: ErrInvalid, text: "cannot exist: a value in its path has another type"}
	notScalar := answer{kind: ErrInvalid, text: "is neither a string nor a number nor a boolean"}
	malformed := answer{kind: ErrInvalid, text: "malformed"}
	fine := answer{key: "42"}
	tests := []struct {
		pointer, body string
		want          answer
	}{
		{"/id", `{"id":"42"}`, fine},
		{"/id", `{"id":42}`, fine},
		{"/id", " {\r\n\t\"a\" : [ { } , \"}\" ] , \"id\" : 42 \n} \n", fine},
		{"/id", `{"\u0069d":"\u0034\u0032"}`, fine},
		{"/id", `{"a":{"id":1},"b":[{"id":2}],"c":"\"id\":3,","id":"42","d":"\\"}`, fine},
		{"/id", `{"id":true}`, answer{key: "true"}},
		{"/id", `{"id":false}`, answer{key: "false"}},
		{"/id", `{"id":"\ud834\udd1e\\\u00e9"}`, answer{key: "\U0001D11E\\é"}},
		{"/id", `{"id":"\ufffd\\ud800"}`, answer{key: "\ufffd\\ud800"}},
		{"", `"42"`, fine},
		{"", ` 42 `, fine},
		{"", `42`, fine},
		{"", `true`, answer{key: "true"}},
		{"", `null`, null},
		{"", `{}`, notScalar},
		{"/", `{"":"42"}`, fine},
		{"/order/id", `{"order":{"id":"42"}}`, fine},
		{"/order/id", `{"id":1,"order":{"a":{"id":2},"id":"42"},"z":{"id":3}}`, fine},
		{"/a~1b/c~0d/~01", `{"a/b":{"c~d":{"~1":42}}}`, fine},
		{"/a%2fb", `{"a%2fb":42}`, fine},
		{"/items/1", `{"items":[1,42,3]}`, fine},
		{"/items/0/id", `{"items":[ {"id":42} ]}`, fine},
		{"/items/2", `{"items":[[1,2],{"a":[3]},42]}`, fine},
		{"/0", `{"0":42}`, fine},
		{"/-", `{"-":42}`, fine},
		{"/01", `{"01":42}`, fine},
		{"/日本", `{"日本":42}`, fine},

		{"/id", `{}`, missing},
		{"/id", `{"a":{"id":1}}`, missing},
		{"/id", `{"id2":1,"i":2}`, missing},
		{"/order/id", `{"order":null}`, missing},
		{"/items/0", `{"items":[]}`, missing},
		{"/items/1", `{"items":[0]}`, missing},
		{"/items/99999999999999999999", `{"items":[0]}`, missing},
		{"/id", `{"id":null}`, null},
		{"/id", `{"id":""}`, empty},

		{"/id", `{"id":1,"id":2}`, ambiguous},
		{"/id", `{"id":1,"id":1}`, ambiguous},
		{"/id", `{"id":1,"\u0069d":1}`, ambiguous},
		{"/id", `{"id":1,"ID":2}`, ambiguous},
		{"/id", `{"Id":1}`, ambiguous},
		{"/id", `{"id":null,"id":1}`, ambiguous},
		{"/sku", `{"sku":1,"ſku":2}`, ambiguous}, // encoding/json takes the long s for an s
		{"/order/id", `{"order":{"id":1},"Order":{}}`, ambiguous},
		{"/order/id", `{"order":{"id":1,"iD":2}}`, ambiguous},
		{"/order/id", `{"a":1,"a":2,"order":{"b":1,"b":2,"id":42}}`, fine}, // not on the way

		{"/id", `[]`, misplaced},
		{"/id", `"x"`, misplaced},
		{"/id", `7`, misplaced},
		{"/order/id", `{"order":"id"}`, misplaced},
		{"/order/id", `{"order":[{"id":1}]}`, misplaced},
		{"/items/01", `{"items":[1,2]}`, misplaced},
		{"/items/-", `{"items":[1,2]}`, misplaced},
		{"/items/+1", `{"items":[1,2]}`, misplaced},
		{"/id", `{"id":{}}`, notScalar},
		{"/id", `{"id":[42]}`, notScalar},

		{"/id", `{"id":"4\u00002"}`, answer{kind: ErrInvalid, text: "has control characters in it"}},
		{"/id", `{"id":"42\n"}`, answer{kind: ErrInvalid, text: "has control characters in it"}},
		{"/id", `{"id":1e999}`, answer{kind: ErrInvalid, text: "has too many digits"}},

		{"/id", `{"id":42} {"id":43}`, malformed},
		{"/id", `{"id":42}x`, malformed},
		{"/id", `{"id":42`, malformed},
		{"/id", `{"id":42,}`, malformed},
		{"/id", `{id:42}`, malformed},
		{"/id", `{"id":042}`, malformed},
		{"/id", `{"id":42,"a":NaN}`, malformed},
		{"/id", `id=42`, malformed},
		{"/id", "\ufeff" + `{"id":42}`, malformed},
		{"/id", " ", malformed},
		{"/id", "{\"id\":\"42\xff\"}", malformed},
		{"/id", "{\"id\":42,\"a\":\"\xed\xa0\x80\"}", malformed},
		{"/id", `{"id":"\ud800"}`, malformed},
		{"/id", `{"id":42,"a":"\\\udc00"}`, malformed},
		{"/id", `{"id":42,"a":"\ud834\n"}`, malformed},
		{"/id", `{"id":42,"a":"\ud834x"}`, malformed},
		{"/id", `{"id":42,"\uD834\ud834\udd1e":0}`, malformed},
		{"/id", `{"id":42,"a":"\ud834\u0041"}`, malformed},
	}
	for _, test := range tests {
		t.Run(test.pointer+" "+test.body, func(t *testing.T) {
			t.Parallel()
			source := fmt.Sprintf("JSON value %q", test.pointer)
			want := test.want
			switch {
			case want.text == "malformed":
				want.text = "the body, which should hold " + source + ", is malformed"
			case want.text != "":
				want.text = source + " " + want.text
			}
			key, err := JSON(test.pointer)(postJSON(test.body))
			want.check(t, key, err)
		})
	}
}

func TestJSONStrings(t *testing.T) {
	t.Parallel()
	for _, value := range clean {
		document, err := json.Marshal(map[string]string{"q": value})
		if err != nil {
			t.Fatal(err)
		}
		key, err := JSON("/q")(postJSON(string(document)))
		answer{key: value}.check(t, key, err)
	}
}

// Deep nesting needs no stack and only one pass, and ends at encoding/json's limit.
func TestJSONDepth(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string {
		return `{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `,"id":42}`
	}
	key, err := JSON("/id")(postJSON(nested(10_000)))
	answer{key: "42"}.check(t, key, err)
	_, err = JSON("/id")(postJSON(nested(10_001)))
	answer{kind: ErrInvalid, text: `the body, which should hold JSON value "/id", is malformed`}.check(t, "", err)
}

func TestCanonicalNumber(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1234567890", 10)
	for want, numbers := range map[string][]string{
		"0":                    {"0", "-0", "0.0", "0e5", "-0.000e-9", "0e99999999999999999999", "0E-99999999999999999999"},
		"1":                    {"1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "100.000E-2", "0.00001e5", "0." + strings.Repeat("0", 600) + "1e601"},
		"-1":                   {"-1", "-1.0", "-10e-1"},
		"100":                  {"100", "1e2", "1.00e2", "0.1e3", "1000e-1"},
		"1.5":                  {"1.5", "1.50", "15e-1", "0.15e+1"},
		"-0.05":                {"-0.05", "-5e-2", "-0.5e-1", "-0.0500"},
		"0.1":                  {"0.1", "1e-1", "0.10"},
		"42.5":                 {"42.5", "4.25e1"},
		"9007199254740993":     {"9007199254740993", "9007199254740993.0", "9007199254740993e0"},
		"9007199254740992":     {"9007199254740992"},
		"18446744073709551616": {"18446744073709551616", "1.8446744073709551616e19"},
		"123456789.012345":     {"123456789.012345"},
		long:                   {long, long + ".0", long + "0e-1"},
		"":                     {long + "0", long + ".5", "1e100", "1e101", "-1e9999", "1e-101", "1e99999999999999999999", "1e-99999999999999999999", "1.234567890123456", "42.0000000000000000001"},
	} {
		for _, number := range numbers {
			if got, ok := canonicalNumber(number); got != want || ok != (want != "") {
				t.Errorf("%s = %q, %v; want %q", number, got, ok, want)
			}
		}
	}
	if got, ok := canonicalNumber("1e99"); !ok || got != "1"+strings.Repeat("0", 99) {
		t.Errorf("1e99 = %q, %v", got, ok)
	}
}

// Equal numbers have one key, different ones never. Fractions with different keys are different
// float64s.
func FuzzCanonicalNumber(f *testing.F) {
	for _, seed := range []string{"1", "-1.50", "10e-1", "9007199254740993", "0.1e-3", "0e9", "1e-400", "123456789012345.5", "1E+2"} {
		f.Add(seed, "0.1")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, number := range []string{a, b} {
			_, exponent, _ := strings.Cut(strings.ToLower(number), "e")
			if !json.Valid([]byte(number)) || strings.Trim(number, "+-.0123456789eE") != "" || len(exponent) > 5 || len(number) > 500 {
				t.Skip()
			}
		}
		keyA, okA := canonicalNumber(a)
		keyB, okB := canonicalNumber(b)
		if !okA || !okB {
			return
		}
		ratA, okA := new(big.Rat).SetString(a)
		ratB, okB := new(big.Rat).SetString(b)
		again, okKey := new(big.Rat).SetString(keyA)
		if !okA || !okB || !okKey || ratA.Cmp(again) != 0 {
			t.Fatalf("%s = %q", a, keyA)
		}
		if (ratA.Cmp(ratB) == 0) != (keyA == keyB) {
			t.Errorf("%s = %q, %s = %q", a, keyA, b, keyB)
		}
		floatA, errA := strconv.ParseFloat(a, 64)
		floatB, errB := strconv.ParseFloat(b, 64)
		if strings.Contains(keyA+keyB, ".") && (errA != nil || errB != nil || floatA == floatB && keyA != keyB) {
			t.Errorf("%s and %s are %v and %v to a float64, but %q and %q", a, b, floatA, floatB, keyA, keyB)
		}
	})
}

// Whenever there is a key, it is what the handler decodes. What encoding/json refuses has none.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		`{"a":{"id":"42"}}`, `{"a":[{"id":1},{"id":2.50}],"id":3}`, `{"\u0061":{"i\u0064":true}}`, `{"a":{"ID":1}}`,
		`{"a":{"id":1},"a":{"id":2}}`, ` {"b" : "\\\"" , "a" :{ "id" :-1e2}} `, `{"a":{"id":"\ud834\udd1e"}}`, `{"a":{"id":null}}`,
		`{"a":{"id":"\ud834"}}`, `{"a":{"id":1}}{}`, `[[],{},"",0]`, `{"a":{"1":{},"id":9007199254740993}}`, `"a"`,
	} {
		for _, pointer := range []string{"", "/a/id", "/a/1/id", "/1"} {
			f.Add(pointer, body)
		}
	}
	f.Fuzz(func(t *testing.T, pointer, body string) {
		path, problem := jsontext.ParsePointer(pointer)
		if problem != "" {
			t.Skip()
		}
		key, err := JSON(pointer)(postJSON(body))
		var document any
		decoder := json.NewDecoder(strings.NewReader(body))
		decoder.UseNumber()
		invalid := decoder.Decode(&document)
		if err != nil {
			if !errors.Is(err, ErrMissing) && !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v of an unknown kind", err)
			}
			return
		}
		if invalid != nil {
			t.Fatalf("key %q of what cannot be decoded: %v", key, invalid)
		}
		at := document
		for _, token := range path {
			switch inside := at.(type) {
			case map[string]any:
				at = inside[string(token.Name)]
			case []any:
				at = inside[token.Index]
			default:
				t.Fatalf("key %q, and nothing is there", key)
			}
		}
		want := fmt.Sprint(at)
		if number, ok := at.(json.Number); ok {
			want, _ = canonicalNumber(number.String())
		}
		if key != want {
			t.Errorf("key %q, and the handler decodes %q", key, want)
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	document := []byte(`{"padding":"` + strings.Repeat("x", 2000) + `","items":[` + strings.Repeat(`{"a":1,"b":"two"},`, 100) + `{}],"order":{"id":42}}`)
	fn := JSON("/order/id")
	b.ReportAllocs()
	b.SetBytes(int64(len(document)))
	for b.Loop() {
		r := post(bytes.NewReader(document))
		if _, err := fn(r); err != nil {
			b.Fatal(err)
		}
	}
}
