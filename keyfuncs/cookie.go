package keyfuncs

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/internal/request"
)

// Cookie returns the value of a cookie. The case of the name matters. Like [http.Request.Cookie],
// it removes quotes around the value and does not decode percent signs. The handler must read the
// cookie in the same way: if it decodes the value, as Context.Cookie of Gin does, one value has
// several keys.
//
// A missing or empty cookie is [ErrMissing]. A cookie that is sent more than once, even with equal
// values, or whose value is malformed, is [ErrInvalid].
//
// Cookie panics if name is not a cookie name.
func Cookie(name string) Func {
	if why := notACookie(name); why != "" {
		misuse(fmt.Sprintf("Cookie(%q)", name), why)
	}
	source := fmt.Sprintf("cookie %q", name)
	refuse := refusalsOf(source)
	malformed := newError(ErrInvalid, "%s is malformed", source)
	return func(r *http.Request) (string, error) {
		switch sent := countCookies(r, name); {
		case sent == 0:
			return "", refuse.missing
		case sent > 1:
			return "", refuse.repeated
		}
		cookie, err := r.Cookie(name)
		if err != nil {
			return "", malformed
		}
		return refuse.check(cookie.Value)
	}
}

func notACookie(name string) (why string) {
	if request.IsToken(name) {
		return ""
	}
	return "not a cookie name; want letters, digits and any of " + request.TokenMarks
}

// countCookies also counts malformed cookies, which net/http drops: another reader may accept them.
func countCookies(r *http.Request, name string) (n int) {
	for _, line := range r.Header["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			sent, _, _ := strings.Cut(pair, "=")
			if strings.TrimSpace(sent) == name {
				n++
			}
		}
	}
	return n
}
