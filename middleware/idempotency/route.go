package idempotency

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"
)

// routeOf returns the default of Config.Route: the pattern of the matched route, in a form that is the
// same in every framework and for all names of its wildcards. Without a pattern it is the path.
func routeOf(r *http.Request) string {
	if r.Pattern == "" {
		return mount(r) + r.URL.Path
	}
	pattern := r.Pattern
	if i := strings.LastIndexAny(pattern, " \t"); i >= 0 {
		pattern = pattern[i+1:] // without the method
	}
	path := max(strings.IndexByte(pattern, '/'), 0)
	return pattern[:path] + mount(r) + unnamed(pattern[path:])
}

// unnamed writes each wildcard of a path as {}: {id}, {id...}, {id:[0-9]+}, :id, *path or *. A colon
// begins a wildcard only in paths without braces: no pattern has both. A router that takes colons
// literally may be misread so; then two routes share their keys, and a key used on both is refused.
func unnamed(path string) string {
	path = strings.TrimSuffix(path, "{$}")
	braces := strings.Contains(path, "{")
	var out strings.Builder
	for i := 0; i < len(path); {
		end := i
		switch rest := path[i:]; {
		case rest[0] == '{':
			end += closingBrace(rest)
		case rest[0] == '*', rest[0] == ':' && !braces:
			if slash := strings.IndexByte(rest, '/'); slash >= 0 {
				end += slash
			} else {
				end = len(path)
			}
		case strings.HasPrefix(rest, `\:`):
			i++
		}
		if end > i {
			out.WriteString("{}")
			i = end
			continue
		}
		out.WriteByte(path[i])
		i++
	}
	return out.String()
}

// closingBrace returns the index after the brace that closes the first one; 0: none does. A regular
// expression in between may have its own braces.
func closingBrace(path string) int {
	depth := 0
	for i := range len(path) {
		switch path[i] {
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

// routeProblem says why route cannot be a Config.Route; "": it can.
func routeProblem(route string) string {
	switch {
	case strings.ContainsFunc(route, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return `contains blanks or control characters; leave out the method, which is part of keys anyway, and use a name such as "/pay/{}" or "payments.create"`
	case strings.Contains(strings.ReplaceAll(route, "{}", ""), "{"), strings.Contains(route, "/:"), strings.Contains(route, "/*"):
		return `has a wildcard with a name, which may change; write wildcards as {}, such as "/pay/{}"`
	}
	return ""
}

// mount returns what http.StripPrefix has removed from the path, so that two routers with equal
// patterns can be mounted.
func mount(r *http.Request) string {
	if rest, ok := strings.CutPrefix(r.RequestURI, r.URL.Path); ok && (rest == "" || rest[0] == '?') {
		return "" // as most requests are
	}
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return "" // a request that did not come from a client
	}
	prefix, isPrefix := strings.CutSuffix(asked.Path, r.URL.Path)
	if !isPrefix {
		return "" // rewritten: the new path counts
	}
	return prefix
}
