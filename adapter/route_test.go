package adapter

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestSetRoute(t *testing.T) {
	t.Parallel()
	before := httptest.NewRequest("GET", "/u/%61%2541/f/x", nil)
	before.Pattern = "/of/a/router/further/out"
	values := []string{"%61%2541", "x"}
	r := SetRoute(before.Context(), before, "/u/:id/f/*", []string{"id", "*"}, values)
	if got := fmt.Sprint(r.Pattern, " ", r.PathValue("id"), " ", r.PathValue("*")); got != "/u/:id/f/* %61%2541 x" {
		t.Errorf("the copy has %s", got)
	}
	if before.Pattern != "/of/a/router/further/out" || before.PathValue("id") != "" {
		t.Errorf("the outer request has the pattern %q and id %q", before.Pattern, before.PathValue("id"))
	}
}

// If two wildcards have one name, c.Param of Gin and Echo returns the first.
func TestSetRoute_EqualNames(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/t/1/o/2", nil)
	r = SetRoute(r.Context(), r, "/t/:id/o/:id", []string{"id", "id"}, []string{"1", "2"})
	if got := r.PathValue("id"); got != "1" {
		t.Errorf("id is %q", got)
	}
}

// A goroutine of an outer handler may still read its request while an inner router matches.
func TestSetRoute_Nested(t *testing.T) {
	t.Parallel()
	echoed := func(pattern, id string) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request {
			return SetRoute(r.Context(), r, pattern, []string{"id"}, []string{id})
		}
	}
	byItself := func(r *http.Request) *http.Request { // as chi does
		r.Pattern = "/u/{id}"
		r.SetPathValue("id", "a")
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
		"the same":        {echoed("/u/:id", "a"), echoed("/u/:id", "a"), "a"},
		"another value":   {echoed("/u/:id", "a"), echoed("/u/:id", "b"), "b"},
		"another pattern": {echoed("/u/:id", "a"), echoed("/:id", "a"), "a"},
		"inside a mux":    {byMux, echoed("/u/:id", "b"), "b"},
		"inside chi":      {byItself, echoed("/u/:id", "b"), "b"},
	} {
		outer := test.outer(httptest.NewRequest("GET", "/u/a", nil))
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
