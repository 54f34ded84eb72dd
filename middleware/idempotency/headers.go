package idempotency

import (
	"net/http"
	"slices"
	"strings"
)

// DefaultHeaders keeps the headers that describe the result. It drops those that belong to one exchange: cookies and
// challenges, Date, Age and Server, limits and Retry-After, and the ids of requests and traces. And it drops secrets, so that Redis
// does not have them: every header whose name has one of these texts in it, in any case: authorization, token, secret, password,
// credential, session, jwt, apikey or api-key, or the word auth.
//
// It is a HeaderFilter, and there for others to build on:
//
//	Headers: func(name string) bool { return name == "X-Next-Token" || idempotency.DefaultHeaders(name) }
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

// ofConnection says whether a header is about how an answer is carried, and not about what it says.
func ofConnection(name string, header http.Header) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authentication-Info", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	for _, line := range header["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			if http.CanonicalHeaderKey(strings.TrimSpace(option)) == name {
				return true
			}
		}
	}
	return false
}

// recorded is what the handler has made of the header that was there before, as far as it is to be repeated. What it took
// away is there without values. The length was checked, and is the same for the same body.
func recorded(before, header http.Header, body []byte, keep HeaderFilter) http.Header {
	kept := make(http.Header)
	wanted := func(name string) bool {
		return !ofConnection(name, header) && (name == "Content-Length" || keep(http.CanonicalHeaderKey(name)))
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
				kept[name] = []string{http.DetectContentType(body)} // as net/http does for want of one
			}
		}
	}
	return kept
}
