package idempotency

import (
	"net/http"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/internal/request"
)

// DefaultHeaders keeps the headers that describe the result. It drops those that belong to one
// exchange: cookies and challenges, Date, Age and Server, limits and Retry-After, and the ids of
// requests and traces. It also drops secrets, so that they never reach Redis: every header whose
// name contains, in any case, one of authorization, token, secret, password, credential, session,
// jwt, apikey and api-key, or the word auth.
//
// It is a HeaderFilter for others to build on:
//
//	Headers: func(name string) bool {
//		return name == "X-Next-Token" || idempotency.DefaultHeaders(name)
//	}
func DefaultHeaders(name string) bool {
	switch name {
	case "Set-Cookie", "Www-Authenticate", "Authentication-Info",
		"Date", "Age", "Server", "Server-Timing", "Alt-Svc", "Via", "Retry-After",
		"X-Request-Id", "Request-Id", "X-Correlation-Id", "Correlation-Id", "X-Trace-Id", "X-Amzn-Trace-Id", "X-Amzn-Requestid",
		"X-Cloud-Trace-Context", "Traceparent", "Tracestate", "Traceresponse", "X-B3-Traceid", "X-B3-Spanid":
		return false
	}
	return !strings.HasPrefix(name, "Ratelimit") && !strings.HasPrefix(name, "X-Ratelimit") && !isSecret(name)
}

func isSecret(name string) bool {
	name = strings.ToLower(name)
	for _, text := range []string{"authorization", "token", "secret", "password", "credential", "session", "jwt", "apikey", "api-key"} {
		if strings.Contains(name, text) {
			return true
		}
	}
	return strings.Contains("-"+name+"-", "-auth-")
}

// setAgain takes out of before what the handler has set again, even to the same values: http.Header
// makes a new slice then. header is a copy of live. What is still outer's stays so in header, for a
// Recorder further out.
func setAgain(outer, live, before, header http.Header) {
	for name, was := range outer {
		switch values := live[name]; {
		case len(values) == 0 || len(was) == 0:
		case &values[0] == &was[0]:
			header[name] = values
		case !ofOuter(name):
			delete(before, name)
		}
	}
}

// ofOuter reports whether a header depends on each request, or on the encoding, of middleware
// further out. Middleware in between may copy a whole header, which is not to set it again.
func ofOuter(name string) bool {
	return strings.HasPrefix(name, "Access-Control-") || name == "Content-Encoding"
}

// recorded returns the changes of the handler to the header that replays repeat. A header that it
// deleted has no values. Content-Length is kept, because it was checked against the body.
func recorded(before, header http.Header, body []byte, keep HeaderFilter) http.Header {
	kept := make(http.Header)
	wanted := func(name string) bool {
		return !request.OfConnection(name, header) && (name == "Content-Length" || keep(http.CanonicalHeaderKey(name)))
	}
	for name, values := range header {
		was, had := before[name]
		if wanted(name) && !(had && slices.Equal(was, values)) {
			kept[name] = values
		}
	}
	for name := range before {
		if _, has := header[name]; !has && wanted(name) {
			kept[name] = nil
			if name == "Content-Type" && len(body) > 0 && len(header["Content-Encoding"]) == 0 {
				kept[name] = []string{http.DetectContentType(body)} // as net/http does without one
			}
		}
	}
	return kept
}
