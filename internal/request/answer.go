package request

import (
	"net/http"
	"strconv"
	"strings"
)

// Encodes reports whether middleware further out has declared an encoding. It encodes what is
// written, so the length is not known.
func Encodes(header http.Header) bool { return header.Get("Content-Encoding") != "" }

// Send sends a whole answer. Its header is set already, but for Content-Length. encoder means that
// middleware further out encodes the body.
func Send(w http.ResponseWriter, r *http.Request, status int, body []byte, encoder bool) {
	h := w.Header()
	_, declared := h["Content-Length"]
	_, encoded := h["Transfer-Encoding"]
	if AllowsBody(status) && !encoder && !declared && !encoded && (r.Method != http.MethodHead || len(body) > 0) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if AllowsBody(status) && len(body) > 0 {
		_, _ = w.Write(body) // a client that left will repeat
	}
}

// AllowsBody reports whether an answer with that status can have a body.
func AllowsBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// OfConnection reports whether a header is about the transport of an answer, not its content.
func OfConnection(name string, header http.Header) bool {
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
