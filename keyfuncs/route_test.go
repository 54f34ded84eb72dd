package keyfuncs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// through sends a request through a ServeMux with one route and returns the result of a Func inside
// the handler. served is false if the route did not match.
func through(pattern, method, target string, fn Func) (key string, err error, served bool) {
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
		key, err = fn(r)
		served = true
	})
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
	return key, err, served
}

func TestPathValue(t *testing.T) {
	t.Parallel()
	empty := answer{kind: ErrMissing, text: `path value "id" is empty`}
	control := answer{kind: ErrInvalid, text: `path value "id" has control characters in it`}
	notUTF8 := answer{kind: ErrInvalid, text: `path value "id" is not valid UTF-8`}
	tests := map[string]struct {
		pattern, target string
		want            answer
	}{
		"plain":              {"/u/{id}", "/u/42", answer{key: "42"}},
		"escaped digits":     {"/u/{id}", "/u/%34%32", answer{key: "42"}},
		"with method":        {"GET /u/{id}", "/u/42", answer{key: "42"}},
		"with host":          {"example.com/u/{id}", "/u/42", answer{key: "42"}},
		"one of two":         {"/t/{tenant}/u/{id}", "/t/x/u/42", answer{key: "42"}},
		"slash inside":       {"/u/{id}", "/u/a%2Fb", answer{key: "a/b"}},
		"slash inside, case": {"/u/{id}", "/u/a%2fb", answer{key: "a/b"}},
		"colon":              {"/u/{id}", "/u/a:b", answer{key: "a:b"}},
		"percent":            {"/u/{id}", "/u/100%25", answer{key: "100%"}},
		"escaped twice":      {"/u/{id}", "/u/%2534", answer{key: "4"}},
		"escaped thrice":     {"/u/{id}", "/u/%252534", answer{key: "4"}},
		"escape in pieces":   {"/u/{id}", "/u/%25%32534", answer{key: "4"}},
		"percents":           {"/u/{id}", "/u/%25%2525", answer{key: "%%"}},
		"cut off escape":     {"/u/{id}", "/u/50%25-%254", answer{key: "50%-%4"}},
		"slash, twice":       {"/u/{id}", "/u/a%252fb", answer{key: "a/b"}},
		"NUL, twice":         {"/u/{id}", "/u/%2500", answer{key: "%00"}},
		"lone byte, twice":   {"/u/{id}", "/u/100%25ff%25c3%25bc", answer{key: "100%FFü"}},
		"plus is plus":       {"/u/{id}", "/u/a+b", answer{key: "a+b"}},
		"dot segments":       {"/u/{id}", "/u/%2e%2e", answer{key: ".."}},
		"catch-all":          {"/u/{id...}", "/u/a/b/c", answer{key: "a/b/c"}},
		"catch-all, escaped": {"/u/{id...}", "/u/%61/b%2Fc", answer{key: "a/b/c"}},
		"catch-all, slash":   {"/u/{id...}", "/u/a/", answer{key: "a/"}},
		"catch-all, nothing": {"/u/{id...}", "/u/", empty},
		"NUL":                {"/u/{id}", "/u/%00", control},
		"newline":            {"/u/{id}", "/u/42%0a", control},
		"lone byte":          {"/u/{id}", "/u/%ff", notUTF8},
		"cut off":            {"/u/{id}", "/u/%e2%82", notUTF8},
		"no wildcard":        {"/u/42", "/u/42", answer{kind: ErrNoRoute, text: `path value "id" is unknown: the route's pattern "/u/42" has no wildcard of that name`}},
		"another wildcard":   {"GET /u/{user}", "/u/42", answer{kind: ErrNoRoute, text: `path value "id" is unknown: the route's pattern "GET /u/{user}" has no wildcard of that name`}},
		"longer wildcard":    {"/u/{id2}/{uid}", "/u/4/2", answer{kind: ErrNoRoute, text: `path value "id" is unknown: the route's pattern "/u/{id2}/{uid}" has no wildcard of that name`}},
		"case of the name":   {"/u/{ID}", "/u/42", answer{kind: ErrNoRoute, text: `path value "id" is unknown: the route's pattern "/u/{ID}" has no wildcard of that name`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err, served := through(test.pattern, http.MethodGet, test.target, PathValue("id"))
			if !served {
				t.Fatalf("%s does not match %s", test.pattern, test.target)
			}
			test.want.check(t, key, err)
		})
	}
}

// Outside the mux there is no route. Inside there is.
func TestOutsideMux(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/u/{id}", func(http.ResponseWriter, *http.Request) {})
	tests := map[string]struct {
		fn   Func
		text string
	}{
		"PathValue": {PathValue("id"), `path value "id" is unknown: no route has been matched at this point`},
		"Pattern":   {Pattern(), "the route's pattern is unknown: no route has been matched at this point"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, target := range []string{"/u/42", "/elsewhere"} {
				key, err := test.fn(get(target))
				answer{kind: ErrNoRoute, text: test.text}.check(t, key, err)
			}

			r := get("/elsewhere")
			mux.ServeHTTP(httptest.NewRecorder(), r)
			key, err := test.fn(r)
			answer{kind: ErrNoRoute, text: test.text}.check(t, key, err)

			r = get("/u/42")
			mux.ServeHTTP(httptest.NewRecorder(), r)
			if key, err := test.fn(r); key == "" || err != nil {
				t.Errorf("after routing %q, %v; want a key", key, err)
			}
		})
	}
}

// Other routers than ServeMux, through what their adapters leave in the request.
func TestPathValueOfOtherRouters(t *testing.T) {
	t.Parallel()
	empty := func(name string) answer {
		return answer{kind: ErrMissing, text: `path value "` + name + `" is empty`}
	}
	unknown := func(name, pattern string) answer {
		return answer{kind: ErrNoRoute, text: `path value "` + name + `" is unknown: the route's pattern "` + pattern + `" has no wildcard of that name`}
	}
	tests := []struct {
		pattern, name, value string
		want                 answer
	}{
		{"", "id", "42", answer{key: "42"}}, // a value is enough
		{"/u/:id", "id", "42", answer{key: "42"}},
		{"/u/:id", "id", "4\x002", answer{kind: ErrInvalid, text: `path value "id" has control characters in it`}},
		{"/u/:id", "id", "", empty("id")},
		{"/u/:id/x", "id", "", empty("id")},
		{"/u/v:id", "id", "", empty("id")},
		{"/u/:user_id", "id", "", unknown("id", "/u/:user_id")},
		{"/u/:id2", "id", "", unknown("id", "/u/:id2")},
		{"/f/*path", "path", "", empty("path")},
		{"/f/*", "*", "", empty("*")},
		{"/f*", "*", "", empty("*")}, // as Echo has it
		{"/f/*", "path", "", unknown("path", "/f/*")},
		{"/f*", "path", "", unknown("path", "/f*")},
		{"/u/{id:[0-9]+}", "id", "", empty("id")},
		{"/u/{uid:[0-9]+}", "id", "", unknown("id", "/u/{uid:[0-9]+}")},
		{"/u/{user-id}", "user-id", "7", answer{key: "7"}},
		{"/u/:id?", "id", "", empty("id")}, // as Fiber has it
		{"/u/:id<regex(^[a-z]{3}$)>?", "id", "", empty("id")},
		{"/u/:from-:to?", "to", "", empty("to")},
	}
	for _, test := range tests {
		t.Run(test.pattern+" "+test.name+" "+test.value, func(t *testing.T) {
			t.Parallel()
			r := get("/")
			r.Pattern = test.pattern
			r.SetPathValue(test.name, test.value)
			key, err := PathValue(test.name)(r)
			test.want.check(t, key, err)
		})
	}
}

// The log names the route's wildcards, because the requested one may be misspelt.
func TestRemedy(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"/o/{id}":                       `the wildcards of the route's pattern "/o/{id}" are "id": use one of them in the key, or add "order" to the pattern`,
		"GET x.y/{a}/{b...}":            `"a", "b"`,
		"/o/{$}":                        `the route's pattern "/o/{$}" has no wildcards: add "order" to it, or make the key of something else`,
		"/o/{id:[0-9]{2,3}}/{order-no}": `"id", "order-no"`,
		"/o/:id/*rest":                  `"id", "rest"`,
		"/o/:id/*":                      `"id", "*"`,
		"/files*":                       `"*"`,
		`/v1\:order/:id`:                `"id"`,
		"/o/{id":                        "has no wildcards",
	} {
		r := get("/o/42")
		r.Pattern = pattern
		for name, fn := range map[string]Func{"PathValue": PathValue("order"), "Template": Template("order:{path.order}"), "Join": Join(Const("a"), PathValue("order"))} {
			_, err := fn(r)
			change, ok := Remedy(err)
			if !ok || !strings.Contains(change, want) || !errors.Is(err, ErrNoRoute) {
				t.Errorf("%s, %s: %v, change %q; want %q", pattern, name, err, change, want)
			}
		}
	}
	for _, err := range []error{nil, ErrNoRoute, errors.New("other")} {
		if change, ok := Remedy(err); ok {
			t.Errorf("%v: change %q", err, change)
		}
	}
	_, err := PathValue("order")(get("/o/42"))
	if change, ok := Remedy(err); ok {
		t.Errorf("no route has been matched: change %q; want none", change)
	}
}

func TestPattern(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"/u/{id}", "GET /u/{id}", "example.com/u/{id}", "/u/{rest...}", "/"} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			for _, target := range []string{"/u/42", "/u/43"} {
				key, err, served := through(pattern, http.MethodGet, target, Pattern())
				if !served {
					t.Fatalf("%s does not match %s", pattern, target)
				}
				answer{key: pattern}.check(t, key, err)
			}
		})
	}
}

// With nested muxes, the inner route counts, as in the request.
func TestNestedMux(t *testing.T) {
	t.Parallel()
	key := Join(Pattern(), PathValue("id"))
	var got string
	var err error
	inner := http.NewServeMux()
	inner.HandleFunc("/u/{id}", func(_ http.ResponseWriter, r *http.Request) { got, err = key(r) })
	outer := http.NewServeMux()
	outer.Handle("/api/", http.StripPrefix("/api", inner))
	outer.ServeHTTP(httptest.NewRecorder(), get("/api/u/%34%32"))
	answer{key: "/u/{id}:42"}.check(t, got, err)
}

func TestMethod(t *testing.T) {
	t.Parallel()
	malformed := answer{kind: ErrInvalid, text: "the request method is malformed"}
	tests := map[string]answer{
		"":           {key: "GET"},
		"GET":        {key: "GET"},
		"POST":       {key: "POST"},
		"get":        {key: "get"}, // methods have a case
		"M-SEARCH":   {key: "M-SEARCH"},
		"GET /":      malformed,
		"G\x00T":     malformed,
		"P\xffST":    malformed,
		"secret\r\n": malformed,
	}
	for method, want := range tests {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			key, err := Method()(&http.Request{Method: method})
			want.check(t, key, err)
		})
	}
}

// Decoding takes linear time, because a client can send a path as long as the server accepts.
func TestPathValue_DeepEncoding(t *testing.T) {
	t.Parallel()
	r := get("/")
	r.Pattern = "/u/{id}"
	r.SetPathValue("id", "%"+strings.Repeat("25", 500_000)+"34")
	began := time.Now()
	key, err := PathValue("id")(r)
	answer{key: "4"}.check(t, key, err)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a megabyte of escapes takes %s", took)
	}
}

// FuzzUnescape: a value and all its encodings have one result, which is text.
func FuzzUnescape(f *testing.F) {
	f.Add("42", uint64(3))
	f.Add("%2534%2532", uint64(0))
	f.Add("a%2Fb", uint64(0xff))
	f.Add("%%3411", uint64(1))
	f.Add("100%25ff%2500", uint64(9))
	f.Fuzz(func(t *testing.T, value string, how uint64) {
		if escapeControls(value) != value {
			return // refused before
		}
		want := unescape(value)
		if encoded := spell([]string{value}, how)[1:]; unescape(encoded) != want {
			t.Errorf("%q is %q, and encoded as %q it is %q", value, want, encoded, unescape(encoded))
		}
		if again := unescape(want); again != want {
			t.Errorf("%q is %q, which is %q", value, want, again)
		}
		if want != escapeControls(decodeAll(value)) {
			t.Errorf("%q is %q, want %q", value, want, decodeAll(value))
		}
	})
}
