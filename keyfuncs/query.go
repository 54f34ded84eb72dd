package keyfuncs

import (
	"fmt"
	"net/http"
	"net/url"
)

// Query takes the value of a parameter of the URL's query string, decoded. It does
// not look at a form in the body. A parameter that is not there or empty is
// [ErrMissing]; one that is given more than once, even with equal values, or that
// has control characters or invalid UTF-8 in it, is [ErrInvalid]. So is every
// request whose query string is malformed in any place: what the parser leaves out
// there could be this parameter.
//
// Query panics if name is empty.
func Query(name string) Func {
	if why := notAParameter(name); why != "" {
		misuse(fmt.Sprintf("Query(%q)", name), why)
	}
	source := fmt.Sprintf("query parameter %q", name)
	refuse := refusalsOf(source)
	malformed := newError(ErrInvalid, "the query string, which should hold %s, is malformed", source)
	return func(r *http.Request) (string, error) {
		params, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", malformed
		}
		return refuse.one(params[name])
	}
}

func notAParameter(name string) (why string) {
	if name == "" {
		return "want the name of a parameter"
	}
	return ""
}
