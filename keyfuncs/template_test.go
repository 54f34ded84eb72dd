package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPost, "http://Example.com/t/x:y/u/42%3F?q=a+b", strings.NewReader(`{"order":{"id":7},"a":["~"]}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Tenant", "t~1")
	r.AddCookie(&http.Cookie{Name: "sid", Value: "s/1"})
	r.Pattern = "POST /t/{tenant}/u/{id}"
	r.SetPathValue("tenant", "x:y")
	r.SetPathValue("id", "42?")
	r.RemoteAddr = "[2001:db8::1]:80"
	form := postForm(formType, "", "id=7")
	tests := map[string]struct {
		r    *http.Request
		want string
	}{
		"all":                                 {r, "all"},
		"{path.id}":                           {r, "42?"},
		"order:{path.id}":                     {r, "order:42?"},
		"order:{path.id}:{header.X-Tenant}":   {r, "order:42?:t~~1"},
		"{path.tenant}:{path.id}":             {r, "x~:y:42?"},
		"{path.id}?":                          {r, "42~??"},
		"{path.tenant}y{path.id}":             {r, "x~:~yy42?"},
		"{header.x-tenant}/{cookie.sid}/":     {r, "t~~1/s~/1/"},
		"{query.q}":                           {r, "a b"},
		"{json./order/id}-{json./a/0}":        {r, "7-~~"},
		"{method} {host}{{{path.id}}}":        {r, "POST example.com{42?}"},
		"{pattern}":                           {r, "POST /t/{tenant}/u/{id}"},
		"{path}":                              {r, "/t/x~:y/u/42?"},
		"{ip}":                                {r, "2001~:db8~:~:/64"},
		"{{path.id}}":                         {r, "{path.id}"},
		"~:{path.id}":                         {r, "~:42?"},
		"{path.id}é{path.tenant}":             {r, "42?éx~:y"},
		"{form.id}":                           {form, "7"},
		"{body.hash}":                         {form, hexSum([]byte("id=7"))},
		"日本{path.id}":                         {r, "日本42?"},
		"}}{{":                                {r, "}{"},
		"{path.id}}}{path.tenant}":            {r, "42?}x~:y"},
		"a colon : and a tilde ~ in the text": {r, "a colon : and a tilde ~ in the text"},
	}
	for text, test := range tests {
		fn, err := ParseTemplate(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		key, err := fn(test.r)
		answer{key: test.want}.check(t, key, err)
	}
}

// A template of values and colons gives the same key as a Join.
// A host's own names come first, and their values obey the rules of this package.
func TestTemplateWithSourcesOfTheHost(t *testing.T) {
	t.Parallel()
	value := "a:b"
	source := func(name string) (Func, error) {
		switch name {
		case "user", "method":
			return func(*http.Request) (string, error) { return value, nil }, nil
		case "gone":
			return func(*http.Request) (string, error) { return "", ErrNoRoute }, nil
		case "uuid":
			return nil, errors.New("differs for each request")
		}
		return nil, nil
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	for text, want := range map[string]string{
		"{user}":                 "a~:b",
		"u:{user}:{method}":      "u:a~:b:a~:b",
		"{user}:{host}":          "a~:b:example.com",
		"{{{user}}}":             "{a~:b}",
		"{host}":                 "example.com",
		"no values, so no names": "no values, so no names",
	} {
		fn, err := ParseTemplateWith(text, source)
		if err != nil {
			t.Fatal(err)
		}
		key, err := fn(r)
		answer{key: want}.check(t, key, err)
	}
	fn, err := ParseTemplateWith("{user}:{method}", source)
	if err != nil {
		t.Fatal(err)
	}
	for bad, want := range map[string]error{"": ErrMissing, "a\nb": ErrInvalid, "\xff": ErrInvalid} {
		value = bad
		if key, err := fn(r); key != "" || !errors.Is(err, want) || !strings.HasSuffix(err.Error(), ": {user}") {
			t.Errorf("%q: key %q, error %v; want %v", bad, key, err, want)
		}
	}
	if fn, err = ParseTemplateWith("{gone}", source); err != nil {
		t.Fatal(err)
	}
	if _, err := fn(r); !errors.Is(err, ErrNoRoute) {
		t.Errorf("error %v, want that of the source", err)
	}
	for text, want := range map[string]string{
		"a:{uuid}": "column 4: differs for each request",
		"{nobody}": `column 2: no source "nobody"`,
	} {
		if _, err := ParseTemplateWith(text, source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestTemplateIsAJoin(t *testing.T) {
	t.Parallel()
	r := get("/?a=x:y~&b=z")
	got, err := Template("{query.a}:{query.b}")(r)
	want, _ := Join(Query("a"), Query("b"))(r)
	answer{key: want}.check(t, got, err)
}

func TestTemplateErrorsOfSources(t *testing.T) {
	t.Parallel()
	r := get("/?q=%ff")
	for text, want := range map[string]answer{
		"o:{path.id}:{query.q}": {kind: ErrNoRoute, text: `path value "id" is unknown: no route has been matched at this point`},
		"{query.q}:{path.id}":   {kind: ErrInvalid, text: `query parameter "q" is not valid UTF-8`},
		"{header.X}":            {kind: ErrMissing, text: "header X is missing"},
		"{json./a}":             {kind: ErrMissing, text: `JSON value "/a" is missing`},
	} {
		key, err := Template(text)(r)
		want.check(t, key, err)
	}
}

func TestTemplateMistakes(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"":                         "empty; want a text such as order:{path.id}",
		"order:{path.id":           "column 7: the brace is not closed; double it if it is part of the text",
		"{":                        "column 1: the brace is not closed",
		"a{{{":                     "column 4: the brace is not closed",
		"order:path.id}":           "column 14: a closing brace without an opening one; double it if it is part of the text",
		"}":                        "column 1: a closing brace without",
		"{path.id}}":               "column 10: a closing brace without",
		"{path.a{path.b}":          "column 8: a brace inside braces; the one before is not closed",
		"{path.a}{path.b}":         "column 9: a value directly behind another; put a text between them, such as a colon",
		"{path.a}~{path.b}":        "column 9: a tilde behind a value; put another character between them, such as a colon",
		"{path.a}~":                "column 9: a tilde behind a value",
		"é{}":                      `column 3: no source ""; want path.NAME, header.NAME, query.NAME, cookie.NAME, form.NAME, json.POINTER, method, pattern, host, path, ip or body.hash`,
		"日本:{user.id}":             `column 5: no source "user.id"; want path.NAME`,
		"{header}":                 `column 2: no source "header"`,
		"{ path.id }":              `column 2: no source " path.id "`,
		"{Path.id}":                `column 2: no source "Path.id"`,
		"{method.x}":               `column 2: no source "method.x"`,
		"{path.}":                  `column 7: "": want the bare name of a wildcard`,
		"a:{path.:id}":             `column 9: ":id": want the bare name of a wildcard`,
		"{header.}":                `column 9: "": not a header name`,
		"{path.id} {header.X Y}":   `column 19: "X Y": not a header name`,
		"{header.Host}":            `column 9: "Host": net/http moves this header`,
		"{query.}":                 `column 8: "": want the name of a parameter`,
		"{form.}":                  `column 7: "": want the name of a parameter`,
		"{cookie.a=b}":             `column 9: "a=b": not a cookie name`,
		"{json.order}":             `column 7: "order": not a JSON pointer`,
		"{json./a~2}":              `column 7: "/a~2": not a JSON pointer; want ~0`,
		"ab\xff{path.id}":          "column 3: not valid UTF-8",
		"{query.\xff}":             "column 8: not valid UTF-8",
		"{path.id}:{json./a/{b}}}": "column 20: a brace inside braces",
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			want := fmt.Sprintf("reqlock: keyfuncs: Template(%q): %s", text, want)
			fn, err := ParseTemplate(text)
			if fn != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v, want it to begin with %s", err, want)
			}
			defer func() {
				if got := fmt.Sprint(recover()); got != err.Error() {
					t.Errorf("Template panics with %s", got)
				}
			}()
			Template(text)
		})
	}
}

// FuzzTemplate: different values have different keys, whatever the template's text.
func FuzzTemplate(f *testing.F) {
	for _, seed := range [][7]string{
		{"order:", ":", "", "a", "b:c", "a:b", "c"},
		{"", "x", "x", "ax", "b", "a", "xb"},
		{"", "~:", "", "a", "b", "a~", "b"},
		{"{", "}{", "}", "}", "{", "}{", ""},
		{"", "é", "", "aè", "b", "a", "éb"},
		{"", ":", ":", "a:", "b", "a", ":b:"},
		{"~", "-", "~~", "a-", "-~", "a", "--~"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6])
	}
	double := strings.NewReplacer("{", "{{", "}", "}}")
	f.Fuzz(func(t *testing.T, before, between, behind, a0, a1, b0, b1 string) {
		text := double.Replace(before) + "{path.a}" + double.Replace(between) + "{path.b}" + double.Replace(behind)
		parsed, err := parseTemplate(text, nil)
		if err != nil {
			return
		}
		keyOf := func(values []string) (string, error) {
			r := get("/")
			r.Pattern = "/{a}/{b}"
			r.SetPathValue("a", values[0])
			r.SetPathValue("b", values[1])
			return parsed.key(r)
		}
		a, b := []string{a0, a1}, []string{b0, b1}
		keyA, errA := keyOf(a)
		keyB, errB := keyOf(b)
		for i := range a { // a value and its encodings are the same
			a[i], b[i] = unescape(a[i]), unescape(b[i])
		}
		if errA == nil && errB == nil && (keyA == keyB) != slices.Equal(a, b) {
			t.Errorf("%s: %q = %q, %q = %q", text, a, keyA, b, keyB)
		}
		if errA != nil {
			return
		}
		if got, ok := readBack(parsed, keyA); !ok || !slices.Equal(got, a) {
			t.Errorf("%s: %q = %q, which can be read as %q, %v", text, a, keyA, got, ok)
		}
	})
}

// readBack parses a key as described at type template.
func readBack(t template, key string) (values []string, ok bool) {
	key, ok = strings.CutPrefix(key, t.before)
	for _, v := range t.values {
		value := ""
		for key != "" && (v.behind == "" || key[0] != v.behind[0]) {
			if key[0] == '~' {
				key = key[1:]
			}
			value, key = value+key[:1], key[1:]
		}
		values = append(values, value)
		rest, found := strings.CutPrefix(key, v.behind)
		key, ok = rest, ok && found
	}
	return values, ok && key == ""
}

// FuzzParseTemplate: any text is a template or has an error.
func FuzzParseTemplate(f *testing.F) {
	for _, text := range []string{"order:{path.id}:{header.X-Tenant}", "{{{method}}}", "{json./a~1b}", "{", "}", "{a{b}", "é{path.}", "{path.a}~"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fn, err := ParseTemplate(text)
		if (fn == nil) != (err != nil) {
			t.Fatalf("%v, and a Func: %v", err, fn != nil)
		}
		if err == nil {
			if key, err := fn(get("/")); (key == "") != (err != nil) {
				t.Errorf("key %q, %v", key, err)
			}
		}
	})
}
