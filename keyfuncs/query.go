package keyfuncs

import (
	"fmt"
	"net/http"
	"net/url"
)

// Query returns the value of a parameter of the URL's query string, decoded. It
// ignores a form in the body. A missing or empty parameter is [ErrMissing]. A parameter
// that is given more than once, even with equal values, or that contains control
// characters or invalid UTF-8, is [ErrInvalid]. So is every request whose query string
// is malformed anywhere: the parser may have dropped this parameter.
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
