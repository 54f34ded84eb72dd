package routes

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/reqlock/reqlock/internal/pattern"
	"github.com/reqlock/reqlock/keyfuncs"
)

// inside returns an error if the row of a request is probably that of a route further inside: the
// request has matched a subtree that has no row, and its path is that of one. A router would have
// matched that route first if it had it.
func (g *generation[S]) inside(file string, r *http.Request) error {
	if route := canonical(r.Pattern); !strings.HasSuffix(route, "/") && !strings.HasSuffix(route, "{...}") {
		return nil
	}
	paths := pathsIn(r)
	for i, row := range g.source {
		if row.Method != "" && row.Method != r.Method && (row.Method != http.MethodGet || r.Method != http.MethodHead) {
			continue
		}
		if host, _ := pattern.Split(row.Pattern); host != "" && host != (&url.URL{Host: r.Host}).Hostname() {
			continue
		}
		for _, path := range paths {
			if g.paths[i].MatchString(path) {
				return &tooFarOut{matched: r.Pattern, row: row.name(), file: file, line: row.Line}
			}
		}
	}
	return nil
}

// A tooFarOut error says that a guard is around a router, and that the row of the request is that of
// a route inside it.
type tooFarOut struct {
	matched, row string
	file         string
	line         int
}

func (e *tooFarOut) Error() string {
	return fmt.Sprintf("reqlock: routes: the route is unknown: the router has matched %q so far, and the path is that of the row %q in %s, line %d",
		e.matched, e.row, e.file, e.line)
}

func (e *tooFarOut) Unwrap() error { return keyfuncs.ErrNoRoute }

// Remedy says what to change in the program, for the log of the guard.
func (e *tooFarOut) Remedy() string {
	return fmt.Sprintf("wrap the handler of the route %q instead of a router that has it; if it is %q that serves this path, give the row a method that %q does not have",
		e.row, e.matched, e.matched)
}

// pathsIn returns the forms of the path that a router further inside may match: decoded or not, and
// with the prefix that http.StripPrefix has cut.
func pathsIn(r *http.Request) []string {
	paths := []string{r.URL.Path, r.URL.EscapedPath()}
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil {
		paths = append(paths, sent.Path, sent.EscapedPath())
	}
	return paths
}

// pathsOf returns an expression for the paths that a pattern matches. One that ends in a slash is a
// subtree, as in http.ServeMux.
func pathsOf(route string) *regexp.Regexp {
	_, path := pattern.Split(canonical(route))
	exact, isExact := strings.CutSuffix(path, "{$}")
	if path = exact; !isExact && strings.HasSuffix(path, "/") {
		path += "{...}"
	}
	text := strings.NewReplacer(regexp.QuoteMeta("{...}"), ".*", regexp.QuoteMeta("{}"), "[^/]+").Replace(regexp.QuoteMeta(strings.ToValidUTF8(path, "")))
	return regexp.MustCompile("(?s)^" + text + "$")
}
