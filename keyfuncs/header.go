package keyfuncs

import (
	"fmt"
	"net/http"
)

// Header takes the value of a request header. The case of the name does not
// matter, that of the value does. A header that is not there or empty is
// [ErrMissing]; one that is given more than once, even with equal values, or that
// has control characters (a tab is one) or invalid UTF-8 in it, is [ErrInvalid].
//
// Header panics if name is not a header name, and for Host, Trailer and
// Transfer-Encoding: net/http takes those out of the headers of a request, so
// that they would be missing from every one.
func Header(name string) Func {
	if why := notAHeader(name); why != "" {
		misuse(fmt.Sprintf("Header(%q)", name), why)
	}
	name = http.CanonicalHeaderKey(name)
	refuse := refusalsOf("header " + name)
	return func(r *http.Request) (string, error) {
		return refuse.one(r.Header[name])
	}
}

func notAHeader(name string) (why string) {
	if !isToken(name) {
		return "not a header name; want letters, digits and any of " + tokenMarks
	}
	switch http.CanonicalHeaderKey(name) {
	case "Host":
		return "net/http moves this header to Request.Host; it is never among the headers of a request"
	case "Trailer", "Transfer-Encoding":
		return "net/http removes this header; it is never among the headers of a request"
	}
	return ""
}
