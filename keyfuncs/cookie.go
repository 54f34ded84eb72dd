package keyfuncs

import (
	"fmt"
	"net/http"
	"strings"
)

// Cookie takes the value of a cookie. The case of the name matters. Quotes around the value are left out and percent
// signs left alone, as in [http.Request.Cookie]. The handler has to read it in the same way: one that decodes it, as
// Context.Cookie of Gin does, takes values for the same that have different keys.
//
// A cookie that is not there or empty is [ErrMissing]; one that is sent more than once, even with equal values, or
// whose value is malformed, is [ErrInvalid].
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
	if isToken(name) {
		return ""
	}
	return "not a cookie name; want letters, digits and any of " + tokenMarks
}

// countCookies counts the malformed ones as well, which net/http leaves out: another reader in front of or behind this
// one may take them.
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
