package keyfuncs

import (
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/internal/pattern"
)

// Path returns the path of the URL, without the query string, in one canonical form. /u/42,
// /u/%34%32 and /u/%2534%2532 are one key, and so are /u/a%2Fb, /u/a%2fb and /u/a%252Fb. In the key
// a percent sign is %25, a slash inside a segment is %2F, and all else is decoded, repeatedly. A
// trailing slash counts. The empty path is "/".
//
// [ErrInvalid] is every path that some routers and handlers clean and others do not: one with a
// segment that is empty (//), "." or "..", in any spelling. So is one that contains control
// characters or invalid UTF-8.
//
// A slash and an escaped slash are different keys: wildcards of ServeMux that take one segment tell
// them apart. Where the pattern of the matched route has none, or a part that does not, a catch-all
// such as {rest...} and *path, a :name, or a slash at the end, an escaped slash is [ErrInvalid].
// Without a matched route Path cannot know; if the handler reads Request.URL.Path, in which there
// is no difference, mount the guard inside the router.
//
// Upper and lower case and a slash at the end count where they do for the router. Fiber ignores
// them unless its Config says otherwise. There, the path is spelled as the pattern of the route,
// with the values of the wildcards as they are. In an App.Use, where Fiber has not matched the route
// that will answer, it is [ErrNoRoute].
func Path() Func {
	refuse := refusalsOf("the path")
	unclean := newError(ErrInvalid, `the path has a segment that is empty, "." or ".."`)
	slash := newError(ErrInvalid, "the path has an escaped slash")
	unmatched := newError(ErrNoRoute, "the path as the router reads it is unknown: no route has been matched at this point")
	return func(r *http.Request) (string, error) {
		path := r.URL.Path
		switch {
		case r.Context().Value(pattern.UnknownPath{}) == r.URL:
			return "", unmatched
		case path == "":
			return "/", nil
		case !isCleanPath(unescape(path)):
			return "", unclean
		}
		if _, err := refuse.check(path); err != nil {
			return "", err
		}
		key, slashes := canonicalPath(r.URL.EscapedPath())
		if slashes && !tellsSlashes(r.Pattern) {
			return "", slash
		}
		return key, nil
	}
}

// isCleanPath reports whether a decoded path has no empty, "." or ".." segment. Escaped slashes are
// decoded as well: to a handler that reads Request.URL.Path, a/..%2Fb has the segment "..".
func isCleanPath(path string) bool {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		return true
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// canonicalPath decodes a path segment by segment, so that an escaped slash stays escaped.
// slashes reports whether there is one.
func canonicalPath(escaped string) (key string, slashes bool) {
	if !strings.Contains(escaped, "%") {
		return escaped, false
	}
	segments := strings.Split(escaped, "/")
	for i, segment := range segments {
		segments[i] = reserved.Replace(unescape(segment))
		slashes = slashes || strings.Contains(segments[i], "%2F")
	}
	return strings.Join(segments, "/"), slashes
}

// reserved escapes the separator of segments in a key, and the escape character.
var reserved = strings.NewReplacer("%", "%25", "/", "%2F")

// tellsSlashes reports whether a route with this pattern tells a/b from a%2Fb. The empty pattern
// means that no route has matched. A pattern without wildcards does not: Gin matches the decoded
// path.
func tellsSlashes(pattern string) bool {
	if pattern == "" {
		return true
	}
	return strings.Contains(pattern, "{") && !strings.HasSuffix(pattern, "/") && !strings.Contains(pattern, "...}") && !strings.ContainsAny(pattern, "*:")
}
