package guard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// requestOf is a request with the path as it is sent, before any router.
func requestOf(t testing.TB, sent string) *http.Request {
	t.Helper()
	u, err := url.ParseRequestURI(sent)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Request{Method: http.MethodGet, URL: u}
}

func TestSetRoute(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sent, pattern string
		params        string // as the router has them: name=value, separated by blanks
		want          string
	}{
		{"/u/42", "/u/:id", "id=42", "id=42"},
		{"/u/%34%32", "/u/:id", "id=%34%32", "id=42"},
		{"/u/%34%32", "/u/:id", "id=42", "id=42"},
		{"/u/a%2Fb", "/u/:id", "id=a%2Fb", "id=a/b"},
		{"/u/a%2fb", "/u/:id", "id=a%2fb", "id=a/b"},
		{"/u/a%2fb", "/u/:id", "id=a/b", "id=a/b"},
		{"/u/a%252Fb", "/u/:id", "id=a%2Fb", "id=a%2Fb"},       // decoded by the router
		{"/u/%61%252Fb", "/u/:id", "id=%61%252Fb", "id=a%2Fb"}, // not decoded
		{"/u/100%25", "/u/:id", "id=100%", "id=100%"},
		{"/u/a+b", "/u/:id", "id=a+b", "id=a+b"},
		{"/%2F", "/:id", "id=%2F", "id=/"},
		{"/%2f", "/:id", "id=%2f", "id=/"},
		{"/u/%41/f/%42", "/u/:id/f/:of", "id=%41 of=%42", "id=A of=B"},
		{"/u/1/f/2", "/u/:i/f/:id", "i=1 id=2", "i=1 id=2"}, // one name begins with another
		{"/u/%2541/f/2", "/u/:i/f/:id", "i=%41 id=2", "i=%41 id=2"},
		{"/u/%2541:stop", `/u/:id\:stop`, "id\\:stop=%41:stop", "id\\:stop=%41:stop"},
		{"/v1:id/%2541", `/v1\:id/:id`, "id=%41", "id=%41"},
		{"/v1:id/%61%2541", `/v1\:id/:id`, "id=%61%2541", "id=a%41"},
		{"/files/x/y", "/files/*rest", "rest=/x/y", "rest=x/y"}, // Gin's slash
		{"/files/x/%79", "/files/*rest", "rest=/x/%79", "rest=x/y"},
		{"/files/%2541/", "/files/*rest", "rest=/%41/", "rest=%41/"},
		{"/files/x/y", "/files/*", "*=x/y", "*=x/y"},
		{"/files/%2541/y", "/files/*", "*=%41/y", "*=%41/y"},
		{"/files/%78/%2541", "/files/*", "*=%78/%2541", "*=x/%41"},
		{"/files/", "/files/*", "*=", "*="},
		{"/u/%2541/", "/u/:id", "id=%41", "id=%41"},     // a slash that the router overlooks
		{"/u//%2541", "/u/:id", "id=%41", "id=%41"},     // or one too many
		{"/u/x/../%2541", "/u/:id", "id=%41", "id=%41"}, // or more than that
		{"/u//%61%2541", "/u/:id", "id=%61%2541", "id=a%41"},
		{"/%2541", "/api/u/:id", "id=%41", "id=%41"}, // without a prefix that was stripped
		{"/%61%2541", "/api/u/:id", "id=%61%2541", "id=a%41"},
		{"/", "/api/u/:id", "id=%41", "id=A"}, // nothing is left to tell by
		{"/x", "/t/:of/f/*", "of=%61 *=x", "of=a *=x"},
		{"/%2541", "/t/:of/f/*", "of=a *=%41", "of=a *=%41"},
		{"/u/1", "/u/:other", "id=1", "id=1"}, // the pattern has no such wildcard
		{"/u/%41", "/u/{", "id=%41", "id=A"},
		{"/u/%41", "", "id=%41", "id=A"},
	} {
		var names, values []string
		for param := range strings.FieldsSeq(test.params) {
			name, value, _ := strings.Cut(param, "=")
			names, values = append(names, name), append(values, value)
		}
		r := requestOf(t, test.sent)
		r.Pattern = "/of/a/router/further/out"
		given := strings.Join(values, " ")
		before := r
		r = SetRoute(r.Context(), r, test.pattern, names, values)
		if before.Pattern != "/of/a/router/further/out" {
			t.Errorf("the request further out has the pattern %q", before.Pattern)
		}
		var got []string
		for _, name := range names {
			got = append(got, name+"="+r.PathValue(name))
		}
		if strings.Join(got, " ") != test.want || r.Pattern != test.pattern {
			t.Errorf("%s by %s, %s: %s, pattern %q; want %s", test.sent, test.pattern, test.params, got, r.Pattern, test.want)
		}
		if strings.Join(values, " ") != given {
			t.Errorf("%s by %s: the router's own values have become %q", test.sent, test.pattern, values)
		}
	}
}

// Gin's and Echo's c.Param has the first of two that have one name.
func TestSetRouteEqualNames(t *testing.T) {
	t.Parallel()
	r := requestOf(t, "/t/1/o/2")
	r = SetRoute(r.Context(), r, "/t/:id/o/:id", []string{"id", "id"}, []string{"1", "2"})
	if got := r.PathValue("id"); got != "1" {
		t.Errorf("id is %q", got)
	}
}

func TestCanonicalize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		sent, pattern string
		params        string // as the router has set them
		want          string
	}{
		{"/u/42", "GET /u/{id}", "id=42", "id=42"},
		{"/u/%34%32", "GET shop.test/u/{id}", "id=42", "id=42"},
		{"/u/a%252Fb", "shop.test/u/{id}", "id=a%2Fb", "id=a%2Fb"}, // as http.ServeMux has it
		{"/u/%61%252Fb", "/u/{id}", "id=%61%252Fb", "id=a%2Fb"},    // as chi has it
		{"/u/a%2Fb", "/u/{id}", "id=a%2Fb", "id=a/b"},
		{"/u/%2541/below/it", "GET /u/{id}/", "id=%41", "id=%41"},
		{"/u/%61%2541/below/it", "/u/{id}/", "id=%61%2541", "id=a%41"},
		{"/u/%2541/", "GET /u/{id}/{$}", "id=%41", "id=%41"},
		{"/f/%2541/y", "/f/{rest...}", "rest=%41/y", "rest=%41/y"},
		{"/f/%61%2541/y", "/f/*", "*=%61%2541/y", "*=a%41/y"},
		{"/f/%2541/y", "/f/*", "*=%41/y", "*=%41/y"},
		{"/o/%34%32", "/o/{id:[0-9]{2,3}|%34%32}", "id=%34%32", "id=42"},
		{"/o/%2542", "/o/{id:%[0-9]{2,3}}/", "id=%42", "id=%42"},
		{"/%2541", "/api/{id}", "id=%41", "id=%41"}, // http.StripPrefix
		{"/", "/api/{id}", "id=%41", "id=%41"},      // no percent sign is left to think about
		{"/x%20y", "/api/{id}", "id=%41", "id=A"},
		{"/u/%41", "/u/{id", "id=%41", "id=%41"}, // malformed: it has no wildcard
		{"/u/%41", "/u/{id:{}", "id=%41", "id=%41"},
		{"/u/%41", "", "id=%41", "id=%41"},
	} {
		r := requestOf(t, test.sent)
		r.Pattern = test.pattern
		name, value, _ := strings.Cut(test.params, "=")
		r.SetPathValue(name, value)
		r = Canonicalize(r)
		if got := name + "=" + r.PathValue(name); got != test.want || r.Pattern != test.pattern {
			t.Errorf("%s by %s, %s: %s, pattern %q; want %s", test.sent, test.pattern, test.params, got, r.Pattern, test.want)
		}
	}
}

// http.ServeMux decodes by itself, always.
func TestCanonicalizeLeavesServeMuxAlone(t *testing.T) {
	t.Parallel()
	tell := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before := fmt.Sprint(r.PathValue("id"), " ", r.PathValue("rest"))
		r = Canonicalize(r)
		if after := fmt.Sprint(r.PathValue("id"), " ", r.PathValue("rest")); after != before {
			t.Errorf("%s by %s: %q becomes %q", r.URL.EscapedPath(), r.Pattern, before, after)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux := http.NewServeMux()
	for _, pattern := range []string{"/a/{id}", "GET /b/{id}/{$}", "/c/{id}/", "/d/{rest...}", "example.com/e/{id}/f/{rest...}"} {
		mux.Handle(pattern, tell)
	}
	mux.Handle("/strip/{id}", http.StripPrefix("/strip", tell))
	for _, path := range []string{"/a/%s", "/b/%s/", "/c/%s/", "/c/%s/x", "/d/%s", "/d/x/%s/", "/e/%s/f/", "/e/%s/f/%[1]s", "/strip/%s"} {
		for _, value := range []string{"42", "%34%32", "a%2Fb", "a%252fb", "%2541", "%25", "%2525", "%25zz", "a%20%252F"} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest("GET", fmt.Sprintf(path, value), nil))
			if w.Code != http.StatusNoContent {
				t.Errorf("%s with %s: answer %d", path, value, w.Code)
			}
		}
	}
}

// A goroutine that a handler has left behind may still read the request further out, whatever is matched further in.
func TestRouteWithinRoute(t *testing.T) {
	t.Parallel()
	echoed := func(pattern, id string) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request {
			return SetRoute(r.Context(), r, pattern, []string{"id"}, []string{id})
		}
	}
	byItself := func(r *http.Request) *http.Request { // as chi does
		r.Pattern = "/u/{id}"
		r.SetPathValue("id", "%61")
		return r
	}
	byMux := func(r *http.Request) (matched *http.Request) {
		mux := http.NewServeMux()
		mux.HandleFunc("/u/{id}", func(_ http.ResponseWriter, r *http.Request) { matched = r })
		mux.ServeHTTP(httptest.NewRecorder(), r)
		return matched
	}
	for name, test := range map[string]struct {
		outer, inner func(*http.Request) *http.Request
		inside       string
	}{
		"the same":          {echoed("/u/:id", "a"), echoed("/u/:id", "a"), "a"},
		"another value":     {echoed("/u/:id", "a"), echoed("/u/:id", "b"), "b"},
		"another pattern":   {echoed("/u/:id", "a"), echoed("/:id", "a"), "a"},
		"inside a mux":      {byMux, echoed("/u/:id", "b"), "b"},
		"a mux":             {byMux, Canonicalize, "a"},
		"not decoded":       {byItself, Canonicalize, "a"},
		"not decoded twice": {byItself, func(r *http.Request) *http.Request { return Canonicalize(Canonicalize(r)) }, "a"},
	} {
		outer := test.outer(requestOf(t, "/u/%61"))
		before := outer.PathValue("id")
		read := make(chan string)
		go func() { read <- outer.PathValue("id") }()
		if inside := test.inner(outer).PathValue("id"); inside != test.inside {
			t.Errorf("%s: inside, id is %q, want %q", name, inside, test.inside)
		}
		if got := <-read; got != before || outer.PathValue("id") != before {
			t.Errorf("%s: outside, id was %q and is %q, read as %q", name, before, outer.PathValue("id"), got)
		}
	}
}

// However a router has got its value, by the path as it was sent or by the decoded one, it becomes the decoded one.
func FuzzSetRoute(f *testing.F) {
	for _, value := range []string{"42", "a/b", "%41", "%2F", "100%", "%%", "", "..", "a:b", "{x}", "\xff", "/"} {
		f.Add("/u/:id", value)
	}
	for _, pattern := range []string{"GET x.y/u/{id}", "{", "}{", "/u/{id...}/{$}", "/{id:[0-9]{2,3}}", `\:id/*id`, "*", "/a/*/b/:id", "{$}", "::id"} {
		f.Add(pattern, "%41")
	}
	f.Fuzz(func(t *testing.T, pattern, value string) {
		set := func(pattern, from string) string {
			r := &http.Request{URL: &url.URL{Path: "/u/" + value, RawPath: "/u/" + url.PathEscape(value)}}
			return Canonicalize(SetRoute(r.Context(), r, pattern, []string{"id"}, []string{from})).PathValue("id")
		}
		if got := set(pattern, value); !strings.Contains(value, "%") && got != value && got != strings.TrimPrefix(value, "/") {
			t.Errorf("by %q, %q becomes %q", pattern, value, got)
		}
		if strings.Contains(value, "/") {
			return // a segment has none, unless the router takes the path as it was sent
		}
		for _, from := range []string{value, url.PathEscape(value)} {
			if got := set("/u/:id", from); got != value {
				t.Errorf("the router has %q for the path /u/%s: it becomes %q", from, value, got)
			}
		}
	})
}
