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
		"/u/{id}:capture":        "id={id}",
		`/u\:capture/:id`:        "id=:id",
		"/u/{}":                  "={}",
		"/u/{$}":                 "",
		"/u/{id":                 "",
		"/u/id":                  "",
	} {
		var got []string
		for w := range Wildcards(path) {
			got = append(got, fmt.Sprintf("%s=%s", w.Name, path[w.Start:w.End]))
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
