package keyfuncs

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/reqlock/reqlock/internal/pattern"
)

// PathValue returns the value of a wildcard in the path of the matched route, as
// [http.Request.PathValue] does. It decodes all escapes that the router left in the value: /u/42
// and /u/%34%32 are one key in every framework, and /u/a%2Fb gives "a/b". Escapes of escapes are
// decoded as well, so that /u/%2534%2532 is the same key as /u/42, and /u/a%252Fb as /u/a%2Fb: the
// handlers of some routers see %34%32, or a%2Fb, for both. A wildcard that matched nothing, as
// {rest...} can, is [ErrMissing]. A value that contains control characters or invalid UTF-8 is
// [ErrInvalid]; if only decoding reveals them, they stay escaped.
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
	unmatched := newError(ErrNoRoute, "%s is unknown: no route has been matched at this point", source)
	return func(r *http.Request) (string, error) {
		value := r.PathValue(name)
		switch {
		case value != "":
			value, err := refuse.check(value)
			return unescape(value), err
		case r.Pattern == "":
			return "", unmatched
		case !slices.Contains(wildcards(r.Pattern), name):
			return "", noWildcard(source, r.Pattern, name)
		}
		return "", refuse.empty
	}
}

func notAWildcard(name string) (why string) {
	if name == "" || strings.HasSuffix(name, "...") || strings.ContainsAny(name, "{}/:") {
		return `want the bare name of a wildcard, such as "id" for {id}`
	}
	return ""
}

// noWildcard names the wildcards of the route: name may be misspelt.
func noWildcard(source, route, name string) error {
	err := newError(ErrNoRoute, "%s is unknown: the route's pattern %q has no wildcard of that name", source, route)
	switch names := wildcards(route); len(names) {
	case 0:
		return err.withRemedy("the route's pattern %q has no wildcards: add %q to it, or make the key of something else", route, name)
	default:
		for i, name := range names {
			names[i] = strconv.Quote(name)
		}
		return err.withRemedy("the wildcards of the route's pattern %q are %s: use one of them in the key, or add %q to the pattern",
			route, strings.Join(names, ", "), name)
	}
}

// wildcards returns the names of the wildcards in the pattern of a route.
func wildcards(route string) (names []string) {
	_, path := pattern.Split(route)
	for w := range pattern.Wildcards(path) {
		if w.Name != "" {
			names = append(names, w.Name)
		}
	}
	return names
}

// Pattern returns the pattern of the matched route, such as "POST /orders/{id}/pay":
// one key for all requests of a route. It is [ErrNoRoute] if no route has been
// matched where the Func is called.
func Pattern() Func {
	unmatched := newError(ErrNoRoute, "the route's pattern is unknown: no route has been matched at this point")
	return func(r *http.Request) (string, error) {
		if r.Pattern == "" {
			return "", unmatched
		}
		return r.Pattern, nil
	}
}
