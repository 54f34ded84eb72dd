package routes

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/reqlock/reqlock/internal/pattern"
)

// Check returns an *Error for each row of the file that is not a route of the program, joined. Such
// a row does nothing: its pattern may have a typing mistake. has tells whether the program has the
// route of a row; see Listed and Served. Later versions of the file are checked as well. What is
// wrong with them is logged, because the program runs already.
func (t *Routes[S]) Check(has func(Route) bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.has = has
	return t.current.check(t.path, has)
}

// CheckOnce is Check for an adapter that finds the router in a request. Its first call logs what is
// wrong, unless Check was called before.
func (t *Routes[S]) CheckOnce(has func() func(Route) bool) {
	t.checked.Do(func() {
		t.mu.Lock()
		known := t.has != nil
		t.mu.Unlock()
		if known {
			return
		}
		if err := t.Check(has()); err != nil {
			t.opts.logger().Warn("reqlock: routes: the file has rows that do nothing", "error", err)
		}
	})
}

// recheck is Check for a new version of the file; nil: it was not called before.
func (t *Routes[S]) recheck() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.has == nil {
		return nil
	}
	return t.current.check(t.path, t.has)
}

func (g *generation[S]) check(file string, has func(Route) bool) error {
	var all []error
	for _, row := range g.source {
		if has(row.Route) {
			continue
		}
		mistake := errorAt(row.Place, "the program has no route %q, so the row does nothing; want the pattern as the router has it", row.name())
		if slashed := row.withSlash(); has(slashed) { // a router that cuts the slash may find the row
			mistake = errorAt(row.Place, "the program has no route %q; want %q, as the router has it", row.name(), slashed.name())
		}
		mistake.File = file
		all = append(all, mistake)
	}
	return errors.Join(all...)
}

// name is how programs write a route.
func (r Route) name() string { return strings.TrimSpace(r.Method + " " + r.Pattern) }

func (r Route) withSlash() Route {
	r.Pattern += "/"
	return r
}

// Listed is for Check, with a router that lists its routes. of returns a route's method, or "" for
// all methods, and its pattern.
func Listed[R any](routes []R, of func(R) (method, pattern string)) func(Route) bool {
	known := make(map[string]map[string]bool) // The methods of each canonical pattern are known.
	for _, r := range routes {
		method, route := of(r)
		route = canonical(route)
		if known[route] == nil {
			known[route] = make(map[string]bool)
		}
		known[route][method] = true
	}
	return func(row Route) bool {
		methods := known[canonical(row.Pattern)]
		return methods[row.Method] || methods[""] || row.Method == "" && len(methods) > 0 ||
			row.Method == http.MethodHead && methods[http.MethodGet] // many routers answer HEAD by GET
	}
}

// Served is for Check, with a ServeMux. That does not list its routes, but tells which one a
// request has, so it is asked with one for each row.
func Served(mux *http.ServeMux) func(Route) bool {
	return func(row Route) bool {
		methods := []string{row.Method}
		if row.Method == "" {
			methods = []string{
				http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace,
			}
		}
		host, path := sample(row.Pattern)
		for _, method := range methods {
			_, found := mux.Handler(&http.Request{Method: method, Host: host, URL: &url.URL{Path: path}})
			if found != "" && canonical(found) == canonical(row.Pattern) {
				return true
			}
		}
		return false
	}
}

// sample returns a host and a path that match a pattern.
func sample(route string) (host, path string) {
	host, rest := pattern.Split(route)
	rest = strings.TrimSuffix(rest, "{$}")
	var out strings.Builder
	end := 0
	for w := range pattern.Wildcards(rest) {
		out.WriteString(rest[end:w.Start])
		out.WriteString("reqlock-sample")
		if strings.HasSuffix(rest[w.Start:w.End], "...}") {
			out.WriteString("/of/several") // another route may have the wildcard of one segment
		}
		end = w.End
	}
	out.WriteString(rest[end:])
	return host, out.String()
}
