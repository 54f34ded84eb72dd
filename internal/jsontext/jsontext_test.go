package jsontext

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestParsePointer(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]string{
		"":                      "",
		"/":                     `""/-1`,
		"/order/id":             `"order"/-1 "id"/-1`,
		"/items/0":              `"items"/-1 "0"/0`,
		"/00/-1/1e1":            `"00"/-1 "-1"/-1 "1e1"/-1`,
		"/a~1b/~0/~01":          `"a/b"/-1 "~"/-1 "~1"/-1`,
		"/99999999999999999999": fmt.Sprintf(`"99999999999999999999"/%d`, math.MaxInt),
	} {
		path, problem := ParsePointer(pointer)
		var got []string
		for _, token := range path {
			got = append(got, fmt.Sprintf("%q/%d", token.Name, token.Index))
		}
		if problem != "" || strings.Join(got, " ") != want {
			t.Errorf("ParsePointer(%q) = %s, %q; want %s", pointer, got, problem, want)
		}
	}
	for pointer, want := range map[string]string{
		"order": "begins with a slash", "/a~2": "~0 for a tilde", "/a~": "~0 for a tilde", "/\xff": "valid UTF-8",
	} {
		if path, problem := ParsePointer(pointer); path != nil || !strings.Contains(problem, want) {
			t.Errorf("ParsePointer(%q) = %v, %q; want a problem with %q", pointer, path, problem, want)
		}
	}
}

func TestValid(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]bool{
		`{"a":[1,"b"]}`:            true,
		`"\ud834\udd1e"`:           true,
		`"\\ud834"`:                true,
		`"\ufffd"`:                 true,
		`"\ud834"`:                 false,
		`"\udd1e\ud834"`:           false,
		`"\ud834x"`:                false,
		`{"\\\ud834":1}`:           false,
		"\"\xff\"":                 false,
		`{}{}`:                     false,
		``:                         false,
		strings.Repeat("[", 20000): false,
	} {
		if got := Valid([]byte(document)); got != want {
			t.Errorf("Valid(%.40q) = %v, want %v", document, got, want)
		}
	}
}

// Names are the same if encoding/json puts both into one field.
func TestSameName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"key", "KEY", "Key", "\u212aey", "ſ", "s", "S", "kéy", "KÉY", "kęy", "", "keys"} {
		for _, field := range []string{"key", "s", "kéy"} {
			var into struct {
				Key string `json:"key"`
				S   string `json:"s"`
				E   string `json:"kéy"`
			}
			text, err := json.Marshal(map[string]string{name: "found"})
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &into); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"key": into.Key, "s": into.S, "kéy": into.E}[field] == "found"
			if got := sameName([]byte(name), []byte(field)); got != want {
				t.Errorf("sameName(%q, %q) = %v, want %v", name, field, got, want)
			}
			if got := hashName([]byte(name)) == hashName([]byte(field)); got != want {
				t.Errorf("hashName(%q) == hashName(%q) is %v, want %v", name, field, got, want)
			}
		}
	}
}

func TestHashName_EveryLetter(t *testing.T) {
	t.Parallel()
	for letter := 'a'; letter <= 'z'; letter++ {
		lower, upper := string(letter), strings.ToUpper(string(letter))
		if hashName([]byte(lower)) != hashName([]byte(upper)) {
			t.Errorf("%q and %q have different hashes, but are one name for encoding/json", lower, upper)
		}
	}
}

func TestUnquote(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`""`, `"a"`, `"\"\\\/\b\f\n\r\t"`, `"\u00e9\ud834\udd1eé"`, `"\ufffd"`, `"a\\"`} {
		var want string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if got := string(Text(text + ",1]").Unquote()); got != want {
			t.Errorf("%s decodes to %q, want %q", text, got, want)
		}
	}
}
