package keyfuncs

import (
	"fmt"
	"net/http"
	"strings"
)

// PathValue takes the value of a wildcard in the path of the matched route from
// [http.Request.PathValue], and decodes all escapes that the router has left in it:
// /u/42 and /u/%34%32 are one key in every framework, and /u/a%2Fb gives "a/b".
// Escapes of escapes are decoded as well, so that /u/%2534%2532 is the same key as
// /u/42, and /u/a%252Fb as /u/a%2Fb: the handlers of some routers see %34%32, or
// a%2Fb, for both. A wildcard that matched nothing, as {rest...} can, is
// [ErrMissing]; a value with control characters or invalid UTF-8 in it is
// [ErrInvalid], and where only decoding it brings them out, they stay escaped.
//
// It is [ErrNoRoute] if no route has been matched where the Func is called, that is
// around the ServeMux instead of inside it, and if the matched pattern has no
// wildcard of that name. Other routers than ServeMux hand their parameters over
// with [http.Request.SetPathValue]; in their patterns :name and *name count as
// wildcards as well.
//
// PathValue panics if name is empty or not a bare name: "id" is one, "{id}", ":id"
// and "rest..." are not.
func PathValue(name string) Func {
	if why := notAWildcard(name); why != "" {
		misuse(fmt.Sprintf("PathValue(%q)", name), why)
	}
	source := fmt.Sprintf("path value %q", name)
	refuse := refusalsOf(source)
	unmatched := newError(ErrNoRoute, "%s is not known: no route has been matched at this point", source)
	return func(r *http.Request) (string, error) {
		value := r.PathValue(name)
		switch {
		case value != "":
			value, err := refuse.check(value)
			return unescape(value), err
		case r.Pattern == "":
			return "", unmatched
		case !hasWildcard(r.Pattern, name):
			return "", newError(ErrNoRoute, "%s is not known: the route's pattern %q has no wildcard of that name", source, r.Pattern)
		}
		return "", refuse.empty
	}
}

func notAWildcard(name string) (why string) {
	if name == "" || strings.HasPrefix(name, ":") || strings.HasSuffix(name, "...") || strings.ContainsAny(name, "{}/") {
		return `want the bare name of a wildcard, such as "id" for {id}`
	}
	return ""
}

// hasWildcard tells a wildcard that matched nothing from one that is not there; to
// Request.PathValue they are the same. It is asked only about empty values.
func hasWildcard(pattern, name string) bool {
	for segment := range strings.SplitSeq(pattern, "/") {
		switch {
		case strings.Contains(segment, "{"+name+"}"),
			strings.Contains(segment, "{"+name+"...}"),
			strings.Contains(segment, "{"+name+":"), // {name:regexp}
			strings.HasSuffix(segment, ":"+name),
			strings.HasSuffix(segment, "*"+name),
			name == "*" && strings.HasSuffix(segment, "*"): // Echo has /files* as well
			return true
		}
	}
	return false
}

// Pattern takes the pattern of the matched route, such as "POST /orders/{id}/pay":
// one key for all requests of a route. It is [ErrNoRoute] if no route has been
// matched where the Func is called.
func Pattern() Func {
	unmatched := newError(ErrNoRoute, "the route's pattern is not known: no route has been matched at this point")
	return func(r *http.Request) (string, error) {
		if r.Pattern == "" {
			return "", unmatched
		}
		return r.Pattern, nil
	}
}
