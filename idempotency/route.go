package idempotency

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/reqlock/reqlock/internal/pattern"
)

// routeOf returns the default of Config.Route: the pattern of the matched route, in a form that is
// the same in every framework and for all names of its wildcards. Without a pattern it is the path.
func routeOf(r *http.Request) string {
	if r.Pattern == "" {
		return mount(r) + r.URL.Path
	}
	host, path := pattern.Split(r.Pattern)
	return host + mount(r) + unnamed(path)
}

// unnamed writes each wildcard of a path as {}. A router that takes colons literally may be
// misread; then two routes share their keys, and a key used on both is refused.
func unnamed(path string) string {
	path = strings.TrimSuffix(path, "{$}")
	var out strings.Builder
	end := 0
	for w := range pattern.Wildcards(path) {
		out.WriteString(literal(path[end:w.Start]))
		out.WriteString("{}")
		end = w.End
	}
	out.WriteString(literal(path[end:]))
	return out.String()
}

// literal returns the text of a path that a part of a pattern without wildcards stands for.
func literal(part string) string { return strings.ReplaceAll(part, `\:`, ":") }

// routeProblem explains why route cannot be a Config.Route; "": it can.
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
