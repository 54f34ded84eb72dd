package adapter

import (
	"context"
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/internal/pattern"
)

// A Spelling says which differences between a path and the pattern of its route a router ignores,
// as Fiber does. The zero value ignores none.
type Spelling struct {
	// AnyCase ignores upper and lower case of ASCII letters outside of wildcards.
	AnyCase bool
	// AnySlash ignores slashes at the end.
	AnySlash bool
}

// Canonical returns the one path that stands for all paths which the router takes for this one. It
// is spelled as the pattern is, and has the values where the wildcards are. Give the URL of the copy
// for SetRoute that path, so that keyfuncs.Path and the fingerprints of package idempotency know one
// path as well.
//
// ok is false, and canonical is path, if another route may answer, whose pattern is unknown, because
// the pattern stands only for the beginning of path; see [WithoutPath]. A router that ignores
// nothing leaves no doubt: ok is true then.
func (s Spelling) Canonical(path, route string, values []string) (canonical string, ok bool) {
	spelled, filled := fill(route, values)
	// A slash before an optional wildcard may always be missing.
	if filled && (s.equal(spelled, path) || s.equal(spelled, path+"/")) {
		return spelled, true
	}
	return path, s == Spelling{}
}

// fill returns the pattern of a route with values in the place of its wildcards.
func fill(route string, values []string) (path string, ok bool) {
	var out strings.Builder
	end := 0
	for w := range pattern.Wildcards(route) {
		if len(values) == 0 {
			return "", false
		}
		out.WriteString(strings.ReplaceAll(route[end:w.Start], `\`, "")) // escapes a colon
		out.WriteString(values[0])
		values, end = values[1:], w.End
		if w.Short != "" { // the rest is text
			end = w.Start + len(":") + len(w.Short)
		}
	}
	out.WriteString(strings.ReplaceAll(route[end:], `\`, ""))
	return out.String(), len(values) == 0
}

// equal reports whether a router takes two paths for one.
func (s Spelling) equal(a, b string) bool {
	if s.AnySlash {
		a, b = strings.TrimRight(a, "/"), strings.TrimRight(b, "/")
	}
	if !s.AnyCase {
		return a == b
	}
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// WithoutPath returns a copy of r for which keyfuncs.Path returns keyfuncs.ErrNoRoute. It is for a
// router that ignores a part of a path's spelling, and has not matched the route that will answer:
// which part that is depends on the route, and a key of the path as it was sent would let clients
// bypass the lock by another spelling.
func WithoutPath(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), pattern.UnknownPath{}, r.URL))
}
