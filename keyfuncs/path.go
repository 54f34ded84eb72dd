package keyfuncs

import (
	"net/http"
	"net/url"
	"strings"
)

// Path takes the path of the URL, without the query string, in one canonical form: /u/42 and /u/%34%32 are one key, and
// so are /u/a%2Fb and /u/a%2fb. In the key a percent sign is %25, a slash inside a segment is %2F, and all else is decoded.
// A slash at the end counts. The empty path is "/".
//
// [ErrInvalid] is every path that some routers and handlers clean and others take as it is: one with a segment that is
// empty (//), "." or "..", however it is spelled. So is one with control characters or invalid UTF-8 in it.
//
// A slash and an escaped slash are different keys: wildcards of ServeMux that take one segment tell them apart. Where the
// pattern of the matched route has none, or a part that does not, a catch-all such as {rest...} and *path, a :name, or a slash
// at the end, an escaped slash is [ErrInvalid]. Without a matched route Path cannot know; if the handler reads
// Request.URL.Path, in which there is no difference, mount the guard inside the router.
func Path() Func {
	refuse := refusalsOf("the path")
	unclean := newError(ErrInvalid, `the path has a segment that is empty, "." or ".."`)
	slash := newError(ErrInvalid, "the path has an escaped slash in it")
	return func(r *http.Request) (string, error) {
		path := r.URL.Path
		switch {
		case path == "":
			return "/", nil
		case !isCleanPath(path):
			return "", unclean
		}
		if _, err := refuse.check(path); err != nil {
			return "", err
		}
		escaped := r.URL.RawPath != "" && strings.Count(r.URL.EscapedPath(), "/") != strings.Count(path, "/")
		switch {
		case !escaped:
			return escapePercent(path), nil
		case !tellsSlashes(r.Pattern):
			return "", slash
		}
		return canonicalPath(r.URL), nil
	}
}

// isCleanPath looks at a decoded path, in which an escaped slash has become one as well: to a handler that reads Request.URL.Path,
// a/..%2Fb has the segment "..".
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

// canonicalPath decodes a path segment by segment, so that an escaped slash stays one.
func canonicalPath(u *url.URL) string {
	var key strings.Builder
	for i, segment := range strings.Split(u.EscapedPath(), "/") {
		if i > 0 {
			key.WriteByte('/')
		}
		if decoded, err := url.PathUnescape(segment); err == nil { // EscapedPath has nothing that fails
			segment = decoded
		}
		key.WriteString(strings.ReplaceAll(escapePercent(segment), "/", "%2F"))
	}
	return key.String()
}

func escapePercent(s string) string { return strings.ReplaceAll(s, "%", "%25") }

// tellsSlashes reports whether a route with this pattern takes a/b and a%2Fb for different things. The empty pattern is of no
// route. One without wildcards is a path itself: Gin goes by the decoded path, where an escaped slash is like any other.
func tellsSlashes(pattern string) bool {
	if pattern == "" {
		return true
	}
	return strings.Contains(pattern, "{") && !strings.HasSuffix(pattern, "/") && !strings.Contains(pattern, "...}") && !strings.ContainsAny(pattern, "*:")
}
