package jsontext

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	surrogatePair = regexp.MustCompile(`(?i)\\ud[89ab]..\\ud[c-f]..`)
	surrogate     = regexp.MustCompile(`(?i)\\ud[89a-f]`)
)

// reference decodes a document with encoding/json, and encodes it with sorted members. Digests must
// agree with it.
func reference(document []byte) (canonical string, ok bool) {
	if !utf8.Valid(document) || !json.Valid(document) {
		return "", false
	}
	escapes := strings.ReplaceAll(string(document), `\\`, "")
	if surrogate.MatchString(surrogatePair.ReplaceAllString(escapes, "")) {
		return "", false
	}
	in := json.NewDecoder(bytes.NewReader(document))
	in.UseNumber()
	value, ok := decodeValue(in)
	if !ok {
		return "", false
	}
	text, err := json.Marshal(value)
	return string(text), err == nil
}

func decodeValue(in *json.Decoder) (any, bool) {
	token, err := in.Token()
	if err != nil {
		return nil, false
	}
	switch token := token.(type) {
	case string:
		return token, true
	case json.Delim:
		if token == '[' {
			return decodeArray(in)
		}
		return decodeObject(in)
	}
	return token, true
}

func decodeArray(in *json.Decoder) (any, bool) {
	array := []any{}
	for in.More() {
		value, ok := decodeValue(in)
		if !ok {
			return nil, false
		}
		array = append(array, value)
	}
	_, err := in.Token()
	return array, err == nil
}

func decodeObject(in *json.Decoder) (any, bool) {
	object := make(map[string]any)
	for in.More() {
		token, _ := in.Token()
		name, isString := token.(string)
		value, ok := decodeValue(in)
		if !isString || !ok {
			return nil, false
		}
		for other := range object {
			if strings.EqualFold(name, other) {
				return nil, false
			}
		}
		object[name] = value
	}
	_, err := in.Token()
	return object, err == nil
}

// checkDigests compares two documents as Digests and as the reference do.
func checkDigests(t *testing.T, a, b []byte) {
	t.Helper()
	canonicalA, goodA := reference(a)
	canonicalB, goodB := reference(b)
	digestsA, okA := Digests(a, nil)
	digestsB, okB := Digests(b, nil)
	if okA != goodA || okB != goodB {
		t.Fatalf("ok of %.200q: %v, want %v; of %.200q: %v, want %v", a, okA, goodA, b, okB, goodB)
	}
	if !okA || !okB {
		return
	}
	if equal := *digestsA[0] == *digestsB[0]; equal != (canonicalA == canonicalB) {
		t.Fatalf("digests of %.200q and %.200q are equal: %v", a, b, equal)
	}
}

func FuzzDigests(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1,"b":[2,{"c":null}]}`, ` {"b":[2,{"c":null}],"a":1} `},
		{`["\ud834\udd1e\"\\\/\b\f\n\r\t\u00e9"]`, `["𝄞\"\\/\b\f\n\r\té"]`},
		{`{"a":1,"A":2}`, `{"k":1,"\u212a":2}`},
		{`"\ud800"`, `"\ud800\u0041"`}, {`"\ufffd"`, `"x\\"`}, {`"\ufffd"`, `"\\ud800"`}, {`"\ud834\ud834\udd1e"`, `"\udd1e"`},
		{`[[],{},[{}],{"":{}},-0,1e5,true,false,null]`, `[]`}, {"1 ", `"d1"`}, {``, `{}x`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(checkDigests)
}

// TestDigests_RandomDocuments compares random documents with another spelling, and with a document
// that differs in one bit.
func TestDigests_RandomDocuments(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		value := randomValue(random, 4)
		document, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		same := respell(random, value)
		checkDigests(t, document, []byte(same))
		other := bytes.Clone(document)
		other[random.IntN(len(other))] ^= 1 << random.IntN(7)
		checkDigests(t, document, other)
	}
}

func randomValue(random *rand.Rand, depth int) any {
	texts := []string{"", "a", "ab", "é", "𝄞", "\"\\/", "\x00\n", strings.Repeat("long ", 200)}
	switch kind := random.IntN(8); {
	case kind < 2 && depth > 0:
		array := make([]any, random.IntN(8))
		for i := range array {
			array[i] = randomValue(random, depth-1)
		}
		return array
	case kind < 5 && depth > 0:
		object := make(map[string]any)
		for range random.IntN(8) {
			object[texts[random.IntN(len(texts))]+string(rune('a'+random.IntN(26)))] = randomValue(random, depth-1)
		}
		return object
	case kind == 5:
		return texts[random.IntN(len(texts))]
	case kind == 6:
		return random.IntN(100)
	}
	return []any{nil, true, false}[random.IntN(3)]
}

// respell writes a value with other white space, another order of members, and other escapes.
func respell(random *rand.Rand, value any) string {
	space := []string{"", " ", "\n\t", "\r"}[random.IntN(4)]
	var out strings.Builder
	out.WriteString(space)
	switch value := value.(type) {
	case []any:
		out.WriteString("[")
		for i, element := range value {
			if i > 0 {
				out.WriteString(",")
			}
			out.WriteString(respell(random, element))
		}
		out.WriteString("]")
	case map[string]any:
		out.WriteString("{")
		first := true
		for name, member := range value { // in another order each time
			if !first {
				out.WriteString(",")
			}
			first = false
			out.WriteString(respell(random, name) + ":" + respell(random, member))
		}
		out.WriteString("}")
	case string:
		text, _ := json.Marshal(value)
		if random.IntN(2) == 0 {
			text = bytes.ReplaceAll(text, []byte("a"), []byte(`\u0061`))
			text = bytes.ReplaceAll(text, []byte("𝄞"), []byte(`\uD834\udd1e`))
			text = bytes.ReplaceAll(text, []byte("/"), []byte(`\/`))
		}
		out.Write(text)
	default:
		text, _ := json.Marshal(value)
		out.Write(text)
	}
	out.WriteString(space)
	return out.String()
}

// TestDigests_LongArrays shows that an element counts even if the tokens before it were shortened.
func TestDigests_LongArrays(t *testing.T) {
	t.Parallel()
	long := "[" + strings.Repeat(`1,{"a":[2]},`, 5000)
	for _, other := range []string{
		long + "4]", long + "3,3]", long + "[3]]", "[3," + long[1:] + "3]",
		strings.Replace(long, "2", "3", 1) + "3]", strings.Replace(long, `[2]},`, `[2,2]},`, 1) + "3]",
	} {
		checkDigests(t, []byte(long+"3]"), []byte(other))
	}
	checkDigests(t, []byte(long+"3]"), []byte(strings.ReplaceAll(long, ",", " ,")+"\n3]"))
}

// TestDigests_SameValueElsewhere shows that a digest does not depend on where the value stands.
func TestDigests_SameValueElsewhere(t *testing.T) {
	t.Parallel()
	value := `{"x":[1,{"y":"z"}]}`
	whole, _ := Digests([]byte(value), nil)
	long := strings.Repeat("0,", 9000)
	for pointer, document := range map[string]string{
		"/a":      `{"b":1,"a":` + value + `}`,
		"/9000":   `[` + long + value + `]`,
		"/b/1/c":  `{"b":[{"c":1},{"d":2,"c": ` + value + `,"e":[` + long + `1]}]}`,
		"/a~1b/0": `{"a/b":[` + value + `,1]}`,
	} {
		digests, ok := Digests([]byte(document), parse(t, pointer), parse(t, "/none"))
		if !ok || *digests[0] != *whole[0] || digests[1] != nil {
			t.Errorf("%s in %.100s: another digest than the value alone", pointer, document)
		}
	}
}

func parse(t *testing.T, pointer string) []Token {
	t.Helper()
	path, problem := ParsePointer(pointer)
	if problem != "" {
		t.Fatal(problem)
	}
	return path
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		document, pointer string
		want              string
		err               error
	}{
		{`{"a":{"b":[1,{"c": "d" }]}}`, "/a/b/1/c", `"d"`, nil},
		{`{"a":{"b":[1,2]},"c":3}`, "/a/b", `[1,2]`, nil},
		{` [1] `, "", `[1]`, nil},
		{`{"\u0061":1}`, "/a", `1`, nil},
		{`{"0":1}`, "/0", `1`, nil},
		{`{"b":1}`, "/a", "", ErrMissing},
		{`[1]`, "/1", "", ErrMissing},
		{`{"a":null}`, "/a/b", "", ErrMissing},
		{`[1]`, "/a", "", ErrMisplaced},
		{`{"a":"text"}`, "/a/b", "", ErrMisplaced},
		{`{"a":1,"a":2}`, "/a", "", ErrAmbiguous},
		{`{"a":1,"A":2}`, "/a", "", ErrAmbiguous},
		{`{"A":1}`, "/a", "", ErrAmbiguous},
		{`{"b":1,"b":2,"a":3}`, "/a", `3`, nil},
	} {
		value, err := Text(test.document).Trim().Find(parse(t, test.pointer))
		if err != test.err || err == nil && string(value[:value.End()]) != test.want {
			t.Errorf("%q in %s: %s, %v; want %s, %v", test.pointer, test.document, value, err, test.want, test.err)
		}
	}
}
