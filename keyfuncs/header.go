package keyfuncs

import (
	"fmt"
	"net/http"

	"github.com/reqlock/reqlock/internal/request"
)

// Header returns the value of a request header. The case of the name does not
// matter, that of the value does. A missing or empty header is [ErrMissing]. A header
// that is given more than once, even with equal values, or that contains control
// characters (a tab is one) or invalid UTF-8, is [ErrInvalid].
//
// Header panics if name is not a header name, and for Host, Trailer and
// Transfer-Encoding: net/http removes those from the headers of every request.
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
	if !request.IsToken(name) {
		return "not a header name; want letters, digits and any of " + request.TokenMarks
	}
	switch http.CanonicalHeaderKey(name) {
	case "Host":
		return "net/http moves this header to Request.Host; it is never among the headers of a request"
	case "Trailer", "Transfer-Encoding":
		return "net/http removes this header; it is never among the headers of a request"
	}
	return ""
}
