package coalesce

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"

	"github.com/reqlock/reqlock/internal/request"
)

// name returns the name of the lock of a request. Each part has its length in front, so that no two
// lists of parts are one text. credentials are a part of it: those who have none get no answer to
// those who have, and the reverse. keys are those that Config.Policy has decided on.
func (c Config) name(r *http.Request, credentials bool, keys ...string) (string, error) {
	parts := []string{r.Method, strconv.FormatBool(credentials)}
	switch {
	case c.Policy != nil:
		parts = append(append(parts, "policy", strconv.Itoa(len(keys))), keys...)
	case c.Key == nil:
		// The client asks for RequestURI. A router or a middleware may have changed the rest.
		parts = append(parts, "url", strconv.FormatBool(r.TLS != nil), r.Host, r.RequestURI, r.URL.Path, r.URL.RawQuery)
	default:
		key, err := c.Key(r)
		if err != nil {
			return "", err
		}
		parts = append(parts, "key", key)
	}
	if c.User != nil {
		user, err := c.User(r)
		if err != nil {
			return "", err
		}
		parts = append(parts, "user", user)
	}
	text := []byte(nil)
	for _, part := range parts {
		text = request.AppendText(text, part)
	}
	varied := make(http.Header)
	for _, name := range c.Vary {
		varied[name] = r.Header[name]
	}
	sum := sha256.Sum256(request.AppendHeader(text, varied))
	return "reqlock:coalesce:" + hex.EncodeToString(sum[:]), nil
}
