package coalesce

import (
	"net/http"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/idempotency"
)

// A NotShared says why an answer was not shared. Reason is one of a few words, such as
// "set-cookie", which docs/guides/coalesce.md lists.
type NotShared struct{ Reason string }

func (e *NotShared) Error() string {
	return "reqlock: coalesce: the answer is not shared: " + e.Reason
}

// The reasons for which an answer is not shared.
const (
	becauseSetCookie   = "set-cookie"
	becausePrivate     = "private"
	becauseVary        = "vary"
	becauseCredentials = "credentials"
	becauseStatus      = "status"
	becausePartial     = "partial"
	becauseTrailer     = "trailer"
	becauseFlushed     = "flushed"
	becauseHijacked    = "hijacked"
	becauseTooLarge    = "too-large"
	becauseBusy        = "busy"
	becauseIncomplete  = "incomplete"
	becauseUnreadable  = "unreadable"
)

// reasons has them all. A record of another version may have others.
var reasons = map[string]bool{
	becauseSetCookie: true, becausePrivate: true, becauseVary: true, becauseCredentials: true, becauseStatus: true, becausePartial: true,
	becauseTrailer: true, becauseFlushed: true, becauseHijacked: true, becauseTooLarge: true, becauseBusy: true, becauseIncomplete: true,
	becauseUnreadable: true,
}

// mayShare reports whether a request may get the answer of another one. unsafe means that the key is
// known to cover other methods and bodies.
func mayShare(method string, header http.Header, hasBody, unsafe bool) bool {
	if !unsafe && (hasBody || method != http.MethodGet && method != http.MethodHead) {
		return false
	}
	// Parts of an answer, preconditions and other protocols are between one client and the handler.
	for _, name := range []string{"Range", "If-Match", "If-Unmodified-Since", "Upgrade"} {
		if len(header[name]) > 0 {
			return false
		}
	}
	return true
}

// hasCredentials reports whether a request says who asks by a header that the key lacks.
func hasCredentials(header http.Header, vary []string, user bool) bool {
	for _, name := range []string{"Authorization", "Cookie"} {
		if !user && len(header[name]) > 0 && !slices.Contains(vary, name) {
			return true
		}
	}
	return false
}

// An answerHead is what decides whether an answer is shared, beside its body.
type answerHead struct {
	status int
	header http.Header // what the client gets, with what middleware further out has set
}

// unshared returns why an answer is not shared; "": it is. credentials is hasCredentials of the
// request, and vary the headers that the key has.
func (a answerHead) unshared(credentials bool, vary []string) (because string) {
	private, public := false, false
	for directive := range tokens(a.header["Cache-Control"]) {
		name, _, _ := strings.Cut(directive, "=")
		private = private || name == "private" || name == "no-store"
		public = public || name == "public"
	}
	switch {
	case a.status == http.StatusPartialContent || len(a.header["Content-Range"]) > 0:
		return becausePartial
	case a.status < 200 || a.status == http.StatusNotModified || a.status < 500 && !idempotency.DefaultStore(a.status, a.header):
		return becauseStatus
	case len(a.header["Set-Cookie"]) > 0:
		return becauseSetCookie
	case private:
		return becausePrivate
	case credentials && !public:
		return becauseCredentials
	case len(a.header["Trailer"]) > 0:
		return becauseTrailer
	}
	for name := range tokens(a.header["Vary"]) {
		if !slices.Contains(vary, http.CanonicalHeaderKey(name)) {
			return becauseVary
		}
	}
	return ""
}

// tokens yields the elements of a header with a list, in lower case.
func tokens(lines []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for element := range strings.SplitSeq(line, ",") {
				if element = strings.ToLower(strings.TrimSpace(element)); element != "" && !yield(element) {
					return
				}
			}
		}
	}
}

// changed returns the headers that differ from those before. One that was taken away has no values.
func changed(before, header http.Header) http.Header {
	changes := make(http.Header)
	for name, values := range header {
		if was, had := before[name]; !had || !slices.Equal(was, values) {
			changes[name] = values
		}
	}
	for name := range before {
		if _, has := header[name]; !has {
			changes[name] = nil
		}
	}
	return changes
}

// notModified reports whether the client of a request with a header has the answer already.
func notModified(request http.Header, status int, answer http.Header) bool {
	if status != http.StatusOK {
		return false
	}
	if lines := request["If-None-Match"]; len(lines) > 0 {
		return matches(strings.Join(lines, ","), answer.Get("Etag"))
	}
	since, err := http.ParseTime(request.Get("If-Modified-Since"))
	if err != nil {
		return false
	}
	modified, err := http.ParseTime(answer.Get("Last-Modified"))
	return err == nil && !modified.After(since)
}

// matches compares the tags of If-None-Match with that of an answer, weakly. A tag may have commas.
func matches(list, tag string) bool {
	tag = strings.TrimPrefix(tag, "W/")
	if len(tag) < 2 || tag[0] != '"' {
		return false
	}
	for list = strings.TrimLeft(list, ", \t"); list != ""; list = strings.TrimLeft(list, ", \t") {
		if list[0] == '*' {
			return true
		}
		opaque, ok := strings.CutPrefix(strings.TrimPrefix(list, "W/"), `"`)
		if !ok {
			return false
		}
		opaque, list, ok = strings.Cut(opaque, `"`)
		if ok && `"`+opaque+`"` == tag {
			return true
		}
	}
	return false
}
