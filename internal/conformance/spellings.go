package conformance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// RunSpellings runs only what has to do with the spelling of URLs: for the ways in which a router can be set up.
func RunSpellings(t *testing.T, a Adapter) {
	for _, s := range spellings {
		t.Run(a.Name+"/"+s.name, func(t *testing.T) {
			t.Parallel()
			s.run(newEnv(t, a))
		})
	}
}

var spellings = []scenario{
	{name: "one resource has one key however its URL is spelled", run: oneKey},
	{name: "a spelling does not get past the lock that another holds", run: noWayPast},
}

// Each line is one resource in all the ways to spell it; a router may take a spelling or refuse it.
var spelled = map[string][][]string{
	"/u/{id}": {
		{"/u/42", "/u/%34%32", "/u/4%32"},
		{"/u/a%2Fb", "/u/a%2fb", "/u/%61%2Fb"},
		{"/u/a%20b", "/u/%61%20b"},
		{"/u/a%252Fb", "/u/%61%252Fb"},
		{"/u/%C3%BC", "/u/%c3%bc", "/u/%c3%BC"},
		{"/u/100%25", "/u/%31%30%30%25"},
		{"/u/a:b", "/u/a%3Ab", "/u/a%3ab"},
	},
	"/u/{id}/files/{rest...}": {
		{"/u/1/files/x", "/u/%31/files/%78"},
		{"/u/1/files/x/y", "/u/1/files/%78/y", "/u/1/files/x/%79"},
		{"/u/1/files/50%25/y", "/u/1/files/%35%30%25/y"},
	},
}

func oneKey(e *env) {
	for pattern, resources := range spelled {
		keys := make(chan string, 10)
		s := e.serve(Route{Pattern: pattern, Guards: []guard.Config{e.config(func(cfg *guard.Config) {
			if strings.Contains(pattern, "rest") {
				cfg.Key = keyfuncs.Join(cfg.Key, e.adapter.rest())
			}
			cfg.Name = func(key string) string {
				keys <- key
				return "reqlock:" + key
			}
		})}, Handler: func(http.ResponseWriter, *http.Request) {}})

		resourceOf := map[string]string{}
		for _, urls := range resources {
			found := map[string]bool{}
			for _, url := range urls {
				switch a := s.get(url); a.status {
				case http.StatusOK:
					found[<-keys] = true
				case http.StatusNotFound: // refused
				default:
					e.Errorf("%s: answer %d %s", url, a.status, a.body)
				}
			}
			if len(found) > 1 {
				e.Errorf("%q have the keys %v", urls, found)
			}
			for key := range found {
				if other, taken := resourceOf[key]; taken {
					e.Errorf("%s and %s have the same key %q", other, urls[0], key)
				}
				resourceOf[key] = urls[0]
			}
		}
		if len(resourceOf) == 0 {
			e.Errorf("no spelling of %s was let in", pattern)
		}
	}
}

func noWayPast(e *env) {
	g := e.gate()
	s := e.serve(Route{Pattern: "/u/{id}", Guards: []guard.Config{e.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "42" { // to Echo, "/u//42" is about "/42"
			g.ServeHTTP(w, r)
		}
	}})
	first := s.startGet("/u/42")
	inside := g.next()
	for _, url := range []string{"/u/%34%32", "/u/4%32", "/u/%342", "/u//42", "/u/./42", "/u/x/../42", "/u/%2e/42"} {
		_ = s.get(url) // the gate tells of two inside
	}
	inside.leave()
	first.answer().want(e, http.StatusOK, "done")
	g.wantRuns(1)
}

// rest is the key of the wildcard {rest...}.
func (a Adapter) rest() keyfuncs.Func {
	if a.Rest == "" {
		return keyfuncs.PathValue("rest")
	}
	return keyfuncs.PathValue(a.Rest)
}
