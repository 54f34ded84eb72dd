package pattern

import (
	"fmt"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string][2]string{
		"/pay/{id}":                   {"", "/pay/{id}"},
		"POST /pay/{id}":              {"", "/pay/{id}"},
		"POST \t/pay":                 {"", "/pay"},
		"POST example.com/pay":        {"example.com", "/pay"},
		"example.com:8080/pay/:id":    {"example.com:8080", "/pay/:id"},
		"GET /pay/{id:[a b]+}":        {"", "/pay/{id:[a b]+}"},
		"/pay/{id:[a b]+}":            {"", "/pay/{id:[a b]+}"},
		"":                            {"", ""},
		"POST example.com/{a}/{b...}": {"example.com", "/{a}/{b...}"},
	} {
		if host, path := Split(pattern); host != want[0] || path != want[1] {
			t.Errorf("Split(%q) = %q, %q; want %q", pattern, host, path, want)
		}
	}
}

func TestWildcards(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/u/{id}":                "id={id}",
		"/u/{id}/x/{rest...}":    "id={id} rest={rest...}",
		"/u/{id:[0-9]{1,3}}/{x}": "id={id:[0-9]{1,3}} x={x}",
		"/u/{id}-{version}.json": "id={id} version={version}",
		"/u/:id/x":               "id=:id",
		"/u/v:id":                "id=:id",
		"/f/*path":               "path=*path",
		"/f/*":                   "*=*",
		"/f*":                    "*=*",
		"/u/{id}/*":              "id={id} *=*",
		"/f/+":                   "+=+",
		"/f/+/:id":               "+=+ id=:id",
		"/f/a+b/c+":              "",
		"/u/{id}:capture":        "id={id}",
		`/u\:capture/:id`:        "id=:id",
		"/u/:id?":                "id=:id?",
		"/u/:id?/x":              "id=:id?",
		"/u/:id<int>":            "id=:id<int>",
		"/u/:id<int>?":           "id=:id<int>?",
		"/u/:id<int;min(5)>.:x":  "id=:id<int;min(5)> x=:x",
		"/u/:id<regex(a/b)>/:x":  "id=:id<regex(a/b)> x=:x",
		"/u/:id<int":             "id<int|id=:id<int",
		"/f/:from-:to":           "from=:from to=:to",
		"/f/:name.:ext?":         "name=:name ext=:ext?",
		"/f/:a:b":                "a=:a b=:b",
		`/f/:a\-b`:               "a=:a",
		"/f/:order-id":           "order-id|order=:order-id",
		"/f/:file.json":          "file.json|file=:file.json",
		"/f/::id":                "id=:id",
		"/u/{}":                  "={}",

		"/u/:id<regex(^[a-z]{3}$)>/:x":      "id=:id<regex(^[a-z]{3}$)> x=:x",
		`/u/:id<datetime(2006\-01\-02)>`:    `id=:id<datetime(2006\-01\-02)>`,
		`/u/:id<regex([<\>]{2})>?/y`:        `id=:id<regex([<\>]{2})>?`,
		"/u/{id:(?P<x>[a-z]+)}:undo/{name}": "id={id:(?P<x>[a-z]+)} name={name}",
		"/u/{$}":                            "",
		"/u/{id":                            "",
		"/u/id":                             "",
	} {
		var got []string
		for w := range Wildcards(path) {
			name := w.Name
			if w.Short != "" {
				name += "|" + w.Short
			}
			got = append(got, fmt.Sprintf("%s=%s", name, path[w.Start:w.End]))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("Wildcards(%q) = %q, want %q", path, got, want)
		}
	}
	for w := range Wildcards("/{a}/{b}") { // stops in between
		if w.Name != "a" {
			t.Errorf("first wildcard %+v", w)
		}
		break
	}
}
