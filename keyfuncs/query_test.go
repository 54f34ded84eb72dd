package keyfuncs

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	malformed := answer{kind: ErrInvalid, text: `the query string, which should hold query parameter "id", is malformed`}
	repeated := answer{kind: ErrInvalid, text: `query parameter "id" is given more than once`}
	tests := map[string]answer{
		"":                 {kind: ErrMissing, text: `query parameter "id" is missing`},
		"ID=7":             {kind: ErrMissing, text: `query parameter "id" is missing`},
		"a=1&b=2":          {kind: ErrMissing, text: `query parameter "id" is missing`},
		"id":               {kind: ErrMissing, text: `query parameter "id" is empty`},
		"id=":              {kind: ErrMissing, text: `query parameter "id" is empty`},
		"id=7":             {key: "7"},
		"a=1&id=7&b=2":     {key: "7"},
		"&&id=7&":          {key: "7"},
		"%69d=%37":         {key: "7"},
		"id=a%2Fb+c%20d":   {key: "a/b c d"},
		"id=a=b":           {key: "a=b"},
		"id=a:b":           {key: "a:b"},
		"a=1&a=2&id=7":     {key: "7"},
		"id=7&id=8":        repeated,
		"id=7&id=7":        repeated,
		"id=7&id=":         repeated,
		"id=7&id":          repeated,
		"id=7&%69%64=8":    repeated,
		"id=%zz":           malformed,
		"id=7&other=%zz":   malformed,
		"other=%&id=7":     malformed,
		"id=7&%zz=1":       malformed,
		"id=7;x=1":         malformed,
		"x=1;id=7":         malformed,
		"id=7&x;y":         malformed,
		"a=%zz":            malformed, // and not "missing": it may have been meant to be there
		"id=%00":           {kind: ErrInvalid, text: `query parameter "id" has control characters in it`},
		"id=7%0A":          {kind: ErrInvalid, text: `query parameter "id" has control characters in it`},
		"id=%ff":           {kind: ErrInvalid, text: `query parameter "id" is not valid UTF-8`},
		"id=7&other=%00ff": {key: "7"}, // no concern of this key
	}
	for query, want := range tests {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			r := get("/")
			r.URL.RawQuery = query
			key, err := Query("id")(r)
			want.check(t, key, err)
		})
	}
}

func TestQueryValues(t *testing.T) {
	t.Parallel()
	ask := func(value string) (string, error) {
		return Query("q")(get("/?" + url.Values{"q": {value}}.Encode()))
	}
	for _, value := range clean {
		key, err := ask(value)
		answer{key: value}.check(t, key, err)
	}
	for name, test := range unclean {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := ask(test.value)
			answer{kind: ErrInvalid, text: `query parameter "q" ` + test.why}.check(t, key, err)
		})
	}
}

// A form in the body is neither read nor counted.
func TestQueryLeavesTheBody(t *testing.T) {
	t.Parallel()
	const form = "id=from-the-body"
	r := httptest.NewRequest(http.MethodPost, "/?id=7", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	key, err := Query("id")(r)
	answer{key: "7"}.check(t, key, err)
	if body, err := io.ReadAll(r.Body); string(body) != form || err != nil {
		t.Errorf("the body is %q, %v afterwards; want all of it", body, err)
	}
	if r.Form != nil {
		t.Error("the form has been parsed")
	}
}

// A key is what url.ParseQuery reads, from a query that holds it exactly once.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"id=1", "id=%34%32", "id=1&id=1", "id=a+b", "id=%zz", "id=1;x=2", "ID=1", "id=", "%69d=1", "id=%00", "id=%ff"} {
		f.Add(seed)
	}
	key := Query("id")
	f.Fuzz(func(t *testing.T, query string) {
		r := &http.Request{URL: &url.URL{RawQuery: query}}
		got, err := key(r)
		if err != nil {
			if got != "" || !errors.Is(err, ErrMissing) && !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %q, %v", query, got, err)
			}
			return
		}
		params, err := url.ParseQuery(query)
		if err != nil || len(params["id"]) != 1 || params.Get("id") != got || got != r.URL.Query().Get("id") {
			t.Errorf("%q gives %q, and %v (%v) by url.ParseQuery", query, got, params, err)
		}
		if got == "" || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q gives %q", query, got)
		}
	})
}
