package keyfuncs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// answer is the result of a Func: a key, or an error of a given kind and text.
type answer struct {
	key  string
	kind error
	// text lacks "reqlock: keyfuncs: " at its beginning.
	text string
}

func (want answer) check(t *testing.T, key string, err error) {
	t.Helper()
	if key != want.key {
		t.Errorf("key %q, want %q", key, want.key)
	}
	if want.kind == nil {
		if err != nil {
			t.Errorf("error %v, want none", err)
		}
		return
	}
	for _, kind := range []error{ErrSkip, ErrMissing, ErrInvalid, ErrNoRoute} {
		if got := errors.Is(err, kind); got != (kind == want.kind) {
			t.Errorf("error %v: errors.Is(%v) = %v", err, kind, got)
		}
	}
	if err != nil && err.Error() != "reqlock: keyfuncs: "+want.text {
		t.Errorf("error text %q, want %q", err, "reqlock: keyfuncs: "+want.text)
	}
}

func get(target string) *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }

func noClaims(*http.Request) map[string]any { return nil }

// give returns a Func with a fixed result.
func give(key string, err error) Func {
	return func(*http.Request) (string, error) { return key, err }
}

func TestConstructorsPanic(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		construct func()
		want      string
	}{
		"header without a name":   {func() { Header("") }, `Header(""): not a header name`},
		"header with a space":     {func() { Header("X Tenant") }, `Header("X Tenant"): not a header name`},
		"header with a colon":     {func() { Header("X-Tenant:") }, `Header("X-Tenant:"): not a header name`},
		"header beyond ASCII":     {func() { Header("X-Ténant") }, `Header("X-Ténant"): not a header name`},
		"header with a newline":   {func() { Header("X\n") }, `Header("X\n"): not a header name`},
		"Host":                    {func() { Header("host") }, `Header("host"): net/http moves this header to Request.Host`},
		"Trailer":                 {func() { Header("trailer") }, `Header("trailer"): net/http removes this header`},
		"Transfer-Encoding":       {func() { Header("Transfer-Encoding") }, `Header("Transfer-Encoding"): net/http removes this header`},
		"query without a name":    {func() { Query("") }, `Query(""): want the name`},
		"path without a name":     {func() { PathValue("") }, `PathValue(""): want the bare name`},
		"path with braces":        {func() { PathValue("{id}") }, `PathValue("{id}"): want the bare name`},
		"path with a colon":       {func() { PathValue(":id") }, `PathValue(":id"): want the bare name`},
		"path with dots":          {func() { PathValue("rest...") }, `PathValue("rest..."): want the bare name`},
		"path with a slash":       {func() { PathValue("/u") }, `PathValue("/u"): want the bare name`},
		"empty constant":          {func() { Const("") }, `Const(""): want a key`},
		"join of nothing":         {func() { Join() }, "Join(): want at least one part"},
		"join of a nil":           {func() { Join(Method(), nil, Method()) }, "Join, part 2 of 3: nil"},
		"prefix of nothing":       {func() { Prefix("order:", nil) }, `Prefix("order:", nil): want a Func`},
		"empty prefix of nothing": {func() { Prefix("", nil) }, `Prefix("", nil): want a Func`},
		"hash of nothing":         {func() { Hash(nil) }, "Hash(nil): want a Func"},
		"first of nothing":        {func() { FirstOf() }, "FirstOf(): want at least one source"},
		"first of a nil":          {func() { FirstOf(Method(), nil) }, "FirstOf, source 2 of 2: nil"},
		"cookie without a name":   {func() { Cookie("") }, `Cookie(""): not a cookie name`},
		"cookie with an equals":   {func() { Cookie("a=b") }, `Cookie("a=b"): not a cookie name`},
		"form without a name":     {func() { FormValue("") }, `FormValue(""): want the name`},
		"form, nil option":        {func() { FormValue("id", nil) }, `FormValue("id"): a BodyOption is nil`},
		"hash, nil option":        {func() { BodyHash(MaxBody(1), nil) }, "BodyHash: a BodyOption is nil"},
		"body of no bytes":        {func() { MaxBody(0) }, "MaxBody(0): want a number of bytes, at least 1"},
		"body of fewer":           {func() { MaxBody(-1) }, "MaxBody(-1): want a number of bytes, at least 1"},
		"pointer without a slash": {func() { JSON("id") }, `JSON("id"): not a JSON pointer; want one that begins with a slash`},
		"pointer, lone tilde":     {func() { JSON("/a~") }, `JSON("/a~"): not a JSON pointer; want ~0 for a tilde`},
		"pointer, ~2":             {func() { JSON("/~01/a~2") }, `JSON("/~01/a~2"): not a JSON pointer; want ~0 for a tilde`},
		"pointer, bytes":          {func() { JSON("/\xff") }, `JSON("/\xff"): not a JSON pointer; want valid UTF-8`},
		"JSON, nil option":        {func() { JSON("/id", nil) }, `JSON("/id"): a BodyOption is nil`},
		"value without a name":    {func() { Value("", func(*http.Request) any { return 1 }) }, `Value("", get): want a name`},
		"value without get":       {func() { Value("user", nil) }, `Value("user", nil): want a function`},
		"claims without a source": {func() { Claim(nil, "sub") }, "Claim(nil): want a function"},
		"claim without a name":    {func() { Claim(noClaims) }, "Claim(claims): want the name"},
		"claim with an empty one": {func() { Claim(noClaims, "a", "") }, `Claim(claims, ["a" ""]): has an empty name`},
		"context without a key":   {func() { Context(nil) }, "Context(nil): want the key"},
		"context, slice":          {func() { Context([]string{}) }, "Context([]string): cannot be compared"},
		"context, slice inside":   {func() { Context([1]any{[]string{}}) }, "Context([1]interface {}): cannot be compared"},
		"no prefix":               {func() { ClientIP(netip.MustParsePrefix("10.0.0.0/8"), netip.Prefix{}) }, "ClientIP, prefix 2 of 2: invalid; want"},
		"template":                {func() { Template("{x}") }, `Template("{x}"): column 2: no source "x"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "reqlock: keyfuncs: "+test.want) {
					t.Errorf("panic %q, want it to begin with %q", got, "reqlock: keyfuncs: "+test.want)
				}
			}()
			test.construct()
		})
	}
}

// unclean are values that every source refuses.
var unclean = map[string]struct{ value, why string }{
	"NUL":               {"se\x00cret", "has control characters in it"},
	"tab":               {"se\tcret", "has control characters in it"},
	"newline":           {"secret\n", "has control characters in it"},
	"DEL":               {"secret\x7f", "has control characters in it"},
	"C1 control":        {"se\u0085cret", "has control characters in it"},
	"lone byte":         {"se\xffcret", "is not valid UTF-8"},
	"cut off":           {"secret\xe2\x82", "is not valid UTF-8"},
	"surrogate":         {"se\xed\xa0\x80cret", "is not valid UTF-8"},
	"overlong":          {"se\xc0\xafcret", "is not valid UTF-8"},
	"control and bytes": {"\x00secret\xff", "is not valid UTF-8"},
}

// clean are values that every source accepts unchanged.
var clean = []string{"42", "0", " ", "a b", "a:b", "a~b", "{x}", "100%", "%2F", "ü", "日本", "e\u0301", "\ufffd", strings.Repeat("x", 10_000)}

func TestAllocations(t *testing.T) {
	r := get("/orders/42?id=7")
	r.Header.Set("X-Tenant", "tenant1")
	r.Pattern = "GET /orders/{id}"
	r.SetPathValue("id", "42")
	withUser := r.WithContext(context.WithValue(r.Context(), userKey{}, "u-42"))
	missing := get("/")
	tests := map[string]struct {
		fn   Func
		r    *http.Request
		want float64
	}{
		"Header":               {Header("x-tenant"), r, 0},
		"PathValue":            {PathValue("id"), r, 0},
		"Pattern":              {Pattern(), r, 0},
		"Method":               {Method(), r, 0},
		"Const":                {Const("all"), r, 0},
		"Prefix":               {Prefix("order:", PathValue("id")), r, 1},
		"Hash":                 {Hash(PathValue("id")), r, 1},
		"Path":                 {Path(), r, 0},
		"Context":              {Context(userKey{}), withUser, 0},
		"ClientIP":             {ClientIP(), r, 2},
		"Template":             {Template("{header.X-Tenant}:{path.id}"), r, 1},
		"Join":                 {Join(Header("x-tenant"), PathValue("id")), r, 1},
		"Header, missing":      {Header("x-tenant"), missing, 0},
		"PathValue, unmatched": {PathValue("id"), missing, 0},
		"Join, missing":        {Join(Header("x-tenant"), PathValue("id")), missing, 0},
	}
	for name, test := range tests {
		if got := testing.AllocsPerRun(100, func() { _, _ = test.fn(test.r) }); got > test.want {
			t.Errorf("%s: %v allocations, want at most %v", name, got, test.want)
		}
	}
}

// Many goroutines read one request, and one Func serves many requests, under the race detector.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	key := Prefix("order:", Join(Header("X-Tenant"), PathValue("id"), Query("q"), Method(), Pattern(), Hash(Const("c")),
		Cookie("sid"), Path(), Host(), ClientIP(netip.MustParsePrefix("192.0.2.0/24")), FirstOf(Context(userKey{}), Template("{ip}:{query.q}"))))
	shared := get("/orders/42?q=7")
	shared.Header.Set("X-Tenant", "t")
	shared.Header.Set("Cookie", "sid=s")
	shared.Pattern = "/orders/{id}"
	shared.SetPathValue("id", "42")
	bodies := Join(JSON("/id"), BodyHash())
	want, err := key(shared)
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan string)
	const callers = 8
	for range callers {
		go func() {
			got := ""
			for range 100 {
				if got, _ = key(shared); got != want {
					break
				}
				_, _ = key(get("/other"))
				if k, err := bodies(postJSON(`{"id":7}`)); k[:2] != "7:" || err != nil {
					t.Errorf("%q, %v", k, err)
				}
			}
			results <- got
		}()
	}
	for range callers {
		if got := <-results; got != want {
			t.Errorf("key %q, want %q", got, want)
		}
	}
}
