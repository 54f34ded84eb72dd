package guard

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// SetRoute returns a copy of r with what a router has matched, for keyfuncs.Pattern and keyfuncs.PathValue: the pattern, in the
// place of that of a router further out, and the parameters, in the one form that all spellings of a URL share: decoded, a
// catch-all without its leading slash. It is for adapters of routers that keep their parameters to themselves.
//
// The router's word is not taken for whether a value is decoded already: some take the path as it was sent when it is
// spelled in an unusual way, and only then. If the pattern, filled in with the values, is the decoded path, they are decoded.
// Otherwise they are decoded here. In the worst case that is once too often, and two resources that differ by a percent sign
// share a lock; never has one resource two.
//
// The copy has the context ctx.
func SetRoute(ctx context.Context, r *http.Request, pattern string, names, values []string) *http.Request {
	values = canonical(r.URL.Path, pattern, names, values)
	r = withPathValues(ctx, r, names, values)
	r.Pattern = pattern
	return r
}

// canonical are the values in the form of SetRoute; the slice is the same if there is nothing to change.
func canonical(requested, pattern string, names, values []string) []string {
	changed := values
	for i, name := range names {
		if strings.HasPrefix(values[i], "/") && strings.Contains(pattern, "*"+name) { // Gin's catch-all
			if &changed[0] == &values[0] {
				changed = slices.Clone(values)
			}
			changed[i] = values[i][1:]
		}
	}
	if slices.ContainsFunc(values, hasPercent) && !isPath(requested, pattern, expand(pattern, names, changed)) {
		changed = unescaped(changed)
	}
	return changed
}

func hasPercent(value string) bool { return strings.Contains(value, "%") }

// Canonicalize does for a router that fills in the request by itself what SetRoute does for others; it returns r if there
// is nothing to do. chi is one that needs it; http.ServeMux is not, and keeps its values.
func Canonicalize(r *http.Request) *http.Request {
	if !hasPercent(r.URL.EscapedPath()) {
		return r
	}
	names := braced(r.Pattern)
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = r.PathValue(name)
	}
	if isPath(r.URL.Path, r.Pattern, expand(r.Pattern, names, values)) {
		return r
	}
	return withPathValues(r.Context(), r, names, unescaped(values))
}

// withPathValues is a copy of r. A shallow one shares the path values with r, which a goroutine that a handler has left behind
// may be reading: it will do only where nothing is written, or where no router has matched before and r has none.
func withPathValues(ctx context.Context, r *http.Request, names, values []string) *http.Request {
	differ := false
	for i, name := range names {
		differ = differ || r.PathValue(name) != values[i]
	}
	if differ && r.Pattern != "" {
		r = r.Clone(ctx)
	} else {
		r = r.WithContext(ctx)
	}
	if differ {
		for i := len(names) - 1; i >= 0; i-- { // of equal names the first counts, as to c.Param in Gin and Echo
			r.SetPathValue(names[i], values[i])
		}
	}
	return r
}

func unescaped(values []string) []string {
	plain := make([]string, len(values))
	for i, value := range values {
		plain[i] = unescape(value)
	}
	return plain
}

func unescape(value string) string {
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// isPath reports whether a pattern that was filled in is the path. The path may lack a prefix that was stripped on the way,
// or a slash at the end, or be cleaned by the router alone; a pattern that ends in a slash may match what is below it. A prefix with
// a percent sign in it may have been stripped decoded or not: then nothing is known.
func isPath(requested, pattern, filled string) bool {
	if filled == path.Clean(requested) || strings.HasSuffix(pattern, "/") && strings.HasPrefix(requested, filled) {
		return true
	}
	end := strings.TrimSuffix(requested, "/")
	stripped, ok := strings.CutSuffix(strings.TrimSuffix(filled, "/"), end)
	return end != "" && ok && !hasPercent(stripped)
}

// expand fills in a pattern. The wildcards stand in it in the order of the names, in one of the forms {name}, {name...},
// {name:regexp}, :name, *name and, where the name is *, just *.
func expand(pattern string, names, values []string) string {
	if slash := strings.IndexByte(pattern, '/'); slash > 0 {
		pattern = pattern[slash:] // without method and host
	}
	pattern = strings.TrimSuffix(pattern, "{$}")
	var filled strings.Builder
	for i, name := range names {
		start, end := wildcard(pattern, name)
		if start < 0 {
			return ""
		}
		filled.WriteString(literal(pattern[:start]))
		filled.WriteString(values[i])
		pattern = pattern[end:]
	}
	filled.WriteString(literal(pattern))
	return filled.String()
}

// literal is what a pattern without wildcards matches: Gin and Echo have \: for a colon.
func literal(pattern string) string { return strings.ReplaceAll(pattern, `\:`, ":") }

// wildcard finds the wildcard of a name; -1: there is none.
func wildcard(pattern, name string) (start, end int) {
	if name == "*" {
		start = strings.IndexByte(pattern, '*')
		return start, start + 1
	}
	for i := range len(pattern) {
		rest := pattern[i:]
		switch rest[0] {
		case ':', '*':
			escaped := i > 0 && pattern[i-1] == '\\'
			if after, ok := strings.CutPrefix(rest[1:], name); ok && !escaped && (after == "" || after[0] == '/') {
				return i, i + 1 + len(name)
			}
		case '{':
			if size := closing(rest); size > 0 && bare(rest[1:size-1]) == name {
				return i, i + size
			}
		}
	}
	return -1, -1
}

// braced are the names of the wildcards in braces, and of a * for the rest of the path.
func braced(pattern string) (names []string) {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '{':
			size := closing(pattern[i:])
			if size == 0 {
				return names
			}
			if name := bare(pattern[i+1 : i+size-1]); name != "" && name != "$" {
				names = append(names, name)
			}
			i += size - 1
		case '*':
			names = append(names, "*")
		}
	}
	return names
}

// bare is the name in what stands between braces.
func bare(inside string) string {
	name, _, _ := strings.Cut(inside, ":")
	return strings.TrimSuffix(name, "...")
}

// closing is the length of what the brace at the beginning opens, braces within it being part of a regular expression; 0: it
// is never closed.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// KeepForm tells a request of the form that was parsed with a copy of it: a server removes the files of the requests that it
// knows. For adapters, after SetRoute and Canonicalize.
func KeepForm(r, copied *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = copied.MultipartForm
	}
}
