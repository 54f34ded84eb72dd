package keyfuncs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func pathOf(t *testing.T, target, pattern string) (string, error) {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		t.Fatal(err)
	}
	return Path()(&http.Request{Method: http.MethodGet, URL: u, Pattern: pattern})
}

func TestPath(t *testing.T) {
	t.Parallel()
	unclean := answer{kind: ErrInvalid, text: `the path has a segment that is empty, "." or ".."`}
	tests := map[string]answer{
		"/":                 {key: "/"},
		"http://host":       {key: "/"},
		"http://host/":      {key: "/"},
		"*":                 {key: "*"},
		"/u/42":             {key: "/u/42"},
		"/u/%34%32":         {key: "/u/42"},
		"/%75/4%32?id=43":   {key: "/u/42"},
		"/u/42/":            {key: "/u/42/"},
		"/u/a%2Fb":          {key: "/u/a%2Fb"},
		"/u/a%2fb":          {key: "/u/a%2Fb"},
		"/u/%61%2f%62":      {key: "/u/a%2Fb"},
		"/u/a/b":            {key: "/u/a/b"},
		"/u/a%252Fb":        {key: "/u/a%2Fb"},
		"/u/a%25%32%46b":    {key: "/u/a%2Fb"},
		"/u/%2534%2532":     {key: "/u/42"},
		"/u/a%25252fb":      {key: "/u/a%2Fb"},
		"/u/50%2525":        {key: "/u/50%25"},
		"/u/4%25002":        {key: "/u/4%25002"},
		"/u/%25ff":          {key: "/u/%25FF"},
		"/u/a%2F":           {key: "/u/a%2F"},
		"/u/100%25":         {key: "/u/100%25"},
		"/u/a+b":            {key: "/u/a+b"},
		"/u/a%20b":          {key: "/u/a b"},
		"/u/日本":             {key: "/u/日本"},
		"/u/%E6%97%A5本":     {key: "/u/日本"},
		"/u/a;b=c,d:e~f{g}": {key: "/u/a;b=c,d:e~f{g}"},
		"/u/...":            {key: "/u/..."},
		"/U/42":             {key: "/U/42"},
		"//":                unclean,
		"//u/42":            unclean,
		"/u//42":            unclean,
		"/u/42//":           unclean,
		"/u/%2F42":          unclean,
		"/u/a%2F%2fb":       unclean,
		"/%2F":              unclean,
		"/./u":              unclean,
		"/u/.":              unclean,
		"/u/x/../42":        unclean,
		"/u/x/%2e%2e/42":    unclean,
		"/u/x/.%2E":         unclean,
		"/u/..%2Fx":         unclean,
		"/..":               unclean,
		"/u/%2e/":           unclean,
		"/u/%252e%252E/x":   unclean,
		"/u/a%252F%2Fb":     unclean,
		"/u/4%002":          {kind: ErrInvalid, text: "the path has control characters in it"},
		"/u/%0a":            {kind: ErrInvalid, text: "the path has control characters in it"},
		"/u/%ff":            {kind: ErrInvalid, text: "the path is not valid UTF-8"},
	}
	for target, want := range tests {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			key, err := pathOf(t, target, "")
			want.check(t, key, err)
		})
	}
}

// An escaped slash has a separate key if the route distinguishes it from a slash.
func TestPathEscapedSlash(t *testing.T) {
	t.Parallel()
	refused := answer{kind: ErrInvalid, text: "the path has an escaped slash"}
	kept := answer{key: "/u/a%2Fb"}
	for pattern, want := range map[string]answer{
		"":                    kept,
		"/u/{id}":             kept,
		"GET /u/{id}":         kept,
		"example.com/{u}/{b}": kept,
		"/u/{id}/{$}":         kept,
		"/u/a/b":              refused, // Gin goes by the decoded path
		"GET /u/a/b":          refused,
		"/u/{rest...}":        refused,
		"GET /{rest...}":      refused,
		"/u/":                 refused,
		"/":                   refused,
		"/u/:id":              refused, // the last one takes slashes as well in Echo
		"/u/*path":            refused,
		"/u/*":                refused,
	} {
		for _, target := range []string{"/u/a%2Fb", "/u/a%2fb", "/%75/a%2fb", "/u/a%252Fb"} {
			key, err := pathOf(t, target, pattern)
			want.check(t, key, err)
		}
		key, err := pathOf(t, "/%75/a/b%25", pattern)
		answer{key: "/u/a/b%25"}.check(t, key, err)
	}
}

// What ServeMux treats as one resource has one key, and what it distinguishes has two, except for
// escapes of escapes.
func TestPathBehindServeMux(t *testing.T) {
	t.Parallel()
	targets := []string{"/u/ab", "/%75/ab", "/u/%61b", "/u/a/b", "/u/a%2Fb", "/u/a%2fb", "/u/%61%2fb", "/u/a%252Fb", "/u/ab/", "/u//ab", "/u/x/../ab", "/u/x%2F..%2Fab", "/u/%2e%2e"}
	for _, pattern := range []string{"/u/{id}", "/u/{id...}", "/u/", "/{$}"} {
		keys := map[string]string{} // It has the key for what the handler sees.
		for _, target := range targets {
			mux := http.NewServeMux()
			mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
				key, err := Path()(r)
				if err != nil {
					if !errors.Is(err, ErrInvalid) {
						t.Errorf("%s: %v", target, err)
					}
					return
				}
				sees := r.PathValue("id")
				if sees == "" {
					sees = r.URL.Path
				}
				sees = decodeAll(sees)
				if known, ok := keys[sees]; ok && known != key {
					t.Errorf("%s: %q has the keys %q and %q", pattern, sees, known, key)
				}
				keys[sees] = key
			})
			mux.ServeHTTP(httptest.NewRecorder(), get(target))
		}
		distinct := map[string]bool{}
		for _, key := range keys {
			distinct[key] = true
		}
		if len(distinct) != len(keys) || pattern != "/{$}" && len(keys) < 2 {
			t.Errorf("%s: %v; want as many keys as there are resources", pattern, keys)
		}
	}
}

// A middleware may have rewritten the path and left RawPath behind.
func TestPathRewritten(t *testing.T) {
	t.Parallel()
	for want, u := range map[string]*url.URL{
		"/new":    {Path: "/new", RawPath: "/old%2Fpath"},
		"/a/b":    {Path: "/a/b", RawPath: "/a%zz"},
		"rest":    {Path: "rest"}, // StripPrefix("/static/")
		"/100%25": {Path: "/100%"},
	} {
		key, err := Path()(&http.Request{URL: u})
		answer{key: want}.check(t, key, err)
	}
}

// FuzzPath spells the segments of a path in two ways, and compares with another path.
func FuzzPath(f *testing.F) {
	f.Add("u", "a/b", "u", "a", uint64(0x5555))
	f.Add("u", "42", "u", "42", uint64(1<<63-1))
	f.Add("..", "x", "x", "", uint64(0))
	f.Add("u", "%2F", "u", "/", uint64(0b1010))
	f.Add("100%", "日本", "100%25", "日本", uint64(7))
	f.Fuzz(func(t *testing.T, a0, a1, b0, b1 string, how uint64) {
		a, b := []string{a0, a1}, []string{b0, b1}
		keyA, errA := pathOf(t, spell(a, how), "")
		again, errAgain := pathOf(t, spell(a, ^how), "")
		keyB, errB := pathOf(t, spell(b, how), "")
		if keyA != again || (errA == nil) != (errAgain == nil) {
			t.Errorf("%q is %q, %v and %q, %v", a, keyA, errA, again, errAgain)
		}
		if errA != nil && !errors.Is(errA, ErrInvalid) {
			t.Errorf("error %v", errA)
		}
		same := slices.Equal([]string{decodeAll(a0), decodeAll(a1)}, []string{decodeAll(b0), decodeAll(b1)})
		if errA == nil && errB == nil && (keyA == keyB) != same {
			t.Errorf("%q and %q have the keys %q and %q", a, b, keyA, keyB)
		}
		if decoded, err := url.PathUnescape(spell(a, how)); err == nil && errA == nil && strings.Contains(decoded+"/", "/../") {
			t.Errorf("%q has the key %q", a, keyA)
		}
		if errA != nil {
			return
		}
		// A key is a path whose key is itself.
		fixed, err := pathOf(t, keyEscape(keyA), "")
		if fixed != keyA || err != nil {
			t.Errorf("the key %q has the key %q, %v", keyA, fixed, err)
		}
	})
}

var escapes = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// decodeAll decodes a text until it has no escapes.
func decodeAll(text string) string {
	for escapes.MatchString(text) {
		text = escapes.ReplaceAllStringFunc(text, func(escape string) string {
			b, _ := hex.DecodeString(escape[1:])
			return string(b)
		})
	}
	return text
}

// spell writes a path with escapes for every byte that needs one and for those selected by the bits
// of how, in either case.
func spell(segments []string, how uint64) string {
	var path strings.Builder
	n := 0
	for _, segment := range segments {
		path.WriteByte('/')
		for _, c := range []byte(segment) {
			plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
			chosen := how>>(n%64)&1 == 1
			n++
			switch {
			case plain && !chosen:
				path.WriteByte(c)
			case chosen:
				fmt.Fprintf(&path, "%%%02x", c)
			default:
				fmt.Fprintf(&path, "%%%02X", c)
			}
		}
	}
	return path.String()
}

// keyEscape converts a key to a URL and keeps the key's escapes.
func keyEscape(key string) string {
	var path strings.Builder
	for _, c := range []byte(key) {
		if strings.IndexByte("/%", c) >= 0 || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			path.WriteByte(c)
		} else {
			fmt.Fprintf(&path, "%%%02X", c)
		}
	}
	return path.String()
}
