package coalesce

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Requests that differ in a part of the key have different names. The same request has the same name.
func TestName(t *testing.T) {
	t.Parallel()
	base := func() *http.Request { return httptest.NewRequest("GET", "http://shop/report?year=2026", nil) }
	with := func(change func(*http.Request)) *http.Request {
		r := base()
		change(r)
		return r
	}
	user := keyfuncs.FirstOf(keyfuncs.Header("X-User"), keyfuncs.Const("nobody"))
	cfg := Config{User: user, Vary: []string{"Accept-Language"}}
	seen := make(map[string]int)
	for i, r := range []*http.Request{
		base(),
		with(func(r *http.Request) { r.Method = "HEAD" }),
		with(func(r *http.Request) { r.Host = "other" }),
		with(func(r *http.Request) { r.URL.Path = "/rewritten" }),
		with(func(r *http.Request) { r.RequestURI = "/v1/report?year=2026" }),
		with(func(r *http.Request) { r.URL.RawQuery = "year=2025" }),
		with(func(r *http.Request) { r.TLS = &tls.ConnectionState{} }),
		with(func(r *http.Request) { r.Header.Set("X-User", "ann") }),
		with(func(r *http.Request) { r.Header.Set("X-User", "bob") }),
		with(func(r *http.Request) { r.Header["Accept-Language"] = []string{"de", "en"} }),
		with(func(r *http.Request) { r.Header["Accept-Language"] = []string{"de, en"} }),
	} {
		for _, credentials := range []bool{false, true} {
			name, err := cfg.name(r, credentials)
			again, _ := cfg.name(r.Clone(t.Context()), credentials)
			if err != nil || name != again {
				t.Errorf("request %d: %q, %q, %v", i, name, again, err)
			}
			if other, found := seen[name]; found {
				t.Errorf("requests %d and %d have one name", other, i)
			}
			seen[name] = i
		}
	}
	own := Config{Key: keyfuncs.Query("year")}
	a, _ := own.name(base(), false)
	b, _ := own.name(with(func(r *http.Request) { r.Host = "other" }), false)
	c, _ := own.name(with(func(r *http.Request) { r.Method = "HEAD" }), false)
	if a != b || a == c {
		t.Errorf("with a Key: %q, of another host %q, for HEAD %q", a, b, c)
	}
	apart, _ := Config{Policy: func(*http.Request, *guard.Policy) error { return nil }}.name(base(), false, "a", "user", "bob")
	seen[apart] = len(seen) // It has no user, and the keys of one that has.
	decided := Config{Policy: func(*http.Request, *guard.Policy) error { return nil }, User: func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }}
	for _, keys := range [][]string{{"a"}, {"a", "user", "bob"}, {"auserbob"}, {"a", "b"}, {"b", "a"}, {"ab"}} {
		for _, user := range []string{"ann", "bob", ""} {
			name, err := decided.name(with(func(r *http.Request) { r.Header.Set("X-User", user) }), false, keys...)
			if _, found := seen[name]; found || err != nil {
				t.Errorf("keys %q of %q: the name is not new, %v", keys, user, err)
			}
			seen[name] = len(seen)
		}
	}
}

// Two requests whose key, user, Vary headers or credentials differ never have one name, however the
// parts are cut: two thousand names, two million pairs.
func TestName_Pairs(t *testing.T) {
	t.Parallel()
	part := func(name string) keyfuncs.Func {
		return func(r *http.Request) (string, error) { return r.Header.Get(name), nil }
	}
	cfg := Config{Key: part("X-Key"), User: part("X-User"), Vary: []string{"Accept-Language"}}
	parts := []string{"", "a", "b", "ab", "ba", "a:b", "\x00", "\x01a", "user", "1"}
	seen := make(map[string]string)
	for _, key := range parts {
		for _, user := range parts {
			for _, language := range parts {
				for _, credentials := range []bool{false, true} {
					r := httptest.NewRequest("GET", "http://shop/report", nil)
					r.Header = http.Header{"X-Key": {key}, "X-User": {user}, "Accept-Language": {language}}
					name, err := cfg.name(r, credentials)
					if err != nil {
						t.Fatal(err)
					}
					who := fmt.Sprintf("%q of %q in %q, credentials %v", key, user, language, credentials)
					if other, found := seen[name]; found {
						t.Errorf("%s and %s have one name", other, who)
					}
					seen[name] = who
				}
			}
		}
	}
	if len(seen) != 2000 {
		t.Errorf("%d names", len(seen))
	}
}
