package adaptertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// RunSpellings runs only the tests of how URLs are spelled, for a router with another set-up.
func RunSpellings(t *testing.T, a Adapter) {
	for _, s := range spellings {
		t.Run(a.Name+"/"+s.name, func(t *testing.T) {
			t.Parallel()
			s.run(newFixture(t, a))
		})
	}
}

var spellings = []scenario{
	{name: "one resource has one key however its URL is spelled", run: oneKey},
	{name: "handlers that see the same value have the same key", run: keyOfWhatIsSeen},
	{name: "no spelling bypasses the lock of another", run: noWayPast},
	{name: "a path encoded twice does not run beside the path that its handler sees", run: encodedTwice},
}

// Each line has all spellings of one resource. A router may refuse a spelling. An escaped escape is
// in the line of its text, because some routers return a%2Fb for both.
var spelled = map[string][][]string{
	"/u/{id}": {
		{"/u/42", "/u/%34%32", "/u/4%32", "/u/%2534%2532", "/u/%25%33%34%32", "/u/%252534%32"},
		{"/u/a%2Fb", "/u/a%2fb", "/u/%61%2Fb", "/u/a%252Fb", "/u/%61%252Fb", "/u/%2561%25252fb"},
		{"/u/a%20b", "/u/%61%20b", "/u/a%2520b"},
		{"/u/%C3%BC", "/u/%c3%bc", "/u/%c3%BC", "/u/%25C3%BC", "/u/%25C3%25bc"},
		{"/u/100%25", "/u/%31%30%30%25", "/u/100%2525"},
		{"/u/a:b", "/u/a%3Ab", "/u/a%3ab", "/u/a%253Ab"},
		{"/u/a%2Bb", "/u/%61%2bb", "/u/a%252Bb"},
	},
	"/orders/{id}/pay": {
		{"/orders/42/pay", "/orders/42/pay/", "/Orders/42/PAY", "/ORDERS/%34%32/pay/", "/orders/42/pay//", "/orders/42//pay"},
		{"/orders/a/pay", "/orders/a/pay/", "/Orders/a/Pay"},
		{"/orders/A/pay", "/orders/A/pay/", "/ORDERS/A/PAY/"},
		{"/orders/a%20b/pay", "/orders/a%20b/PAY"},
	},
	"/u/{id}/files/{rest...}": {
		{"/u/1/files/x", "/u/%31/files/%78", "/u/1/files/%2578"},
		{"/u/1/files/x/y", "/u/1/files/%78/y", "/u/1/files/x/%79", "/u/%2531/files/x/%2579"},
		{"/u/1/files/50%25/y", "/u/1/files/%35%30%25/y", "/u/1/files/50%2525/y"},
	},
}

// keyed serves a pattern. It sends each key, and each value that the handler sees, to a channel.
func (fx *fixture) keyed(pattern string, key keyfuncs.Func) (s *testServer, keys, seen chan string) {
	keys, seen = make(chan string, 10), make(chan string, 10)
	s = fx.serve(Route{
		Pattern: pattern,
		Guards: []guard.Config{fx.config(keyedBy(key), func(cfg *guard.Config) {
			cfg.Name = func(key string) string {
				keys <- key
				return "reqlock:" + key
			}
		})},
		Params:  func(params Params) { seen <- fmt.Sprintf("%q %q", params("id"), params(fx.adapter.restName())) },
		Handler: func(http.ResponseWriter, *http.Request) {},
	})
	return s, keys, seen
}

// ask sends a request and reports whether the handler ran. A router or a key function may refuse
// it.
func (s *testServer) ask(url string) bool {
	s.fx.Helper()
	switch a := s.get(url); a.status {
	case http.StatusOK:
		return true
	case http.StatusNotFound, http.StatusBadRequest:
	default:
		s.fx.Errorf("%s: answer %d %s", url, a.status, a.body)
	}
	return false
}

func oneKey(fx *fixture) {
	for pattern, resources := range spelled {
		s, keys, seen := fx.keyed(pattern, fx.wildcards(pattern))
		resourceOf := map[string]string{}
		for _, urls := range resources {
			found := map[string]bool{}
			for _, url := range urls {
				if s.ask(url) {
					found[mustReceive(fx, "a key is derived", keys)] = true
					mustReceive(fx, "the handler sees a value", seen)
				}
			}
			if len(found) > 1 {
				fx.Errorf("%q have the keys %v", urls, found)
			}
			for key := range found {
				if other, taken := resourceOf[key]; taken {
					fx.Errorf("%s and %s have the same key %q", other, urls[0], key)
				}
				resourceOf[key] = urls[0]
			}
		}
		if len(resourceOf) == 0 {
			fx.Errorf("no spelling of %s was let in", pattern)
		}
	}
}

// A key function does not know how often its handler decodes the router's value, so the key depends
// on that value alone.
func keyOfWhatIsSeen(fx *fixture) {
	for pattern, resources := range spelled {
		for name, key := range map[string]keyfuncs.Func{
			"PathValue": fx.wildcards(pattern),
			"Path":      keyfuncs.Path(),
		} {
			s, keys, seen := fx.keyed(pattern, key)
			type first struct{ url, key string }
			known := map[string]first{} // The keys are the values that the handler sees.
			for _, urls := range resources {
				for _, url := range urls {
					if !s.ask(url) {
						continue
					}
					got, value := mustReceive(fx, "a key is derived", keys), mustReceive(fx, "the handler sees a value", seen)
					if was, ok := known[value]; ok && was.key != got {
						fx.Errorf("%s: handlers see %s for %s and %s, whose keys are %q and %q", name, value, was.url, url, was.key, got)
					}
					known[value] = first{url, got}
				}
			}
			if len(known) < 2 {
				fx.Errorf("%s: handlers see only %v", name, known)
			}
		}
	}
}

func noWayPast(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serve(Route{Pattern: "/u/{id}", Guards: []guard.Config{fx.config()}, Handler: func(w http.ResponseWriter, r *http.Request) {
		// For Echo, the id of "/u//42" is "/42".
		if id, err := keyfuncs.PathValue("id")(r); id == "42" && err == nil {
			g.ServeHTTP(w, r)
		}
	}})
	first := s.startGet("/u/42")
	inside := g.nextRun()
	for _, url := range []string{"/u/%34%32", "/u/4%32", "/u/%342", "/u//42", "/u/./42", "/u/x/../42", "/u/%2e/42", "/u/%2534%2532"} {
		_ = s.get(url) // the handler fails the test if two are inside
	}
	inside.finish()
	first.mustGetAnswer().want(fx, http.StatusOK, "done")
	g.wantRuns(1)
}

func encodedTwice(fx *fixture) {
	g := fx.newBlockingHandler()
	seen := make(chan string, 1)
	s := fx.serve(Route{
		Pattern: "/orders/{id}/pay",
		Guards:  []guard.Config{fx.config()},
		Params:  func(params Params) { seen <- params("id") },
		Handler: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "stay" {
				g.ServeHTTP(w, r)
			}
		},
	})
	sees := func(url string) (value string, ok bool) {
		if ok = s.ask(url); ok {
			value = mustReceive(fx, "the handler sees a value", seen)
		}
		return value, ok
	}
	for _, pair := range [][2]string{
		{"/orders/42/pay", "/orders/%34%32/pay"},
		{"/orders/%34%32/pay", "/orders/%2534%2532/pay"},
		{"/orders/a%2Fb/pay", "/orders/a%252Fb/pay"},
	} {
		for i, url := range pair {
			other := pair[1-i]
			value, ok := sees(url)
			if otherValue, otherOK := sees(other); !ok || !otherOK || value != otherValue {
				continue
			}
			first := s.startGet(url + "?stay")
			inside := g.nextRun()
			mustReceive(fx, "the handler sees a value", seen)
			if a := s.get(other); a.status != http.StatusConflict {
				fx.Errorf("%s and %s run together, and their handlers see %q", url, other, value)
				mustReceive(fx, "the handler sees a value", seen)
			}
			inside.finish()
			first.mustGetAnswer().want(fx, http.StatusOK, "done")
		}
	}
}

// wildcards returns the key of all wildcards of a pattern.
func (fx *fixture) wildcards(pattern string) keyfuncs.Func {
	if !strings.Contains(pattern, "{rest...}") {
		return keyfuncs.PathValue("id")
	}
	return keyfuncs.Join(keyfuncs.PathValue("id"), keyfuncs.PathValue(fx.adapter.restName()))
}

// restName returns the name of the wildcard {rest...}.
func (a Adapter) restName() string {
	if a.Rest == "" {
		return "rest"
	}
	return a.Rest
}
