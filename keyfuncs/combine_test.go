package keyfuncs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func joined(t *testing.T, parts ...string) string {
	t.Helper()
	fns := make([]Func, len(parts))
	for i, part := range parts {
		fns[i] = give(part, nil)
	}
	key, err := Join(fns...)(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestJoin(t *testing.T) {
	t.Parallel()
	tests := []struct {
		want  string
		parts []string
	}{
		{"tenant1:42", []string{"tenant1", "42"}},
		{"a", []string{"a"}},
		{"a:b:c", []string{"a", "b", "c"}},
		{"a:b~:c", []string{"a", "b:c"}},
		{"a~:b:c", []string{"a:b", "c"}},
		{"a~:b~:c", []string{"a:b:c"}},
		{"~~", []string{"~"}},
		{"a~~:b", []string{"a~", "b"}},
		{"a:~~b", []string{"a", "~b"}},
		{"a~~~:b", []string{"a~:b"}},
		{":", []string{"", ""}},
		{"a:", []string{"a", ""}},
		{"", []string{""}},
		{"{x}:100%:\x00", []string{"{x}", "100%", "\x00"}}, // the guard's to escape
		{"日本:ü", []string{"日本", "ü"}},
		{"\xff:\xfe", []string{"\xff", "\xfe"}},
		{strings.Repeat("x", 500) + ":" + strings.Repeat("~:", 500), []string{strings.Repeat("x", 500), strings.Repeat(":", 500)}},
	}
	for _, test := range tests {
		if got := joined(t, test.parts...); got != test.want {
			t.Errorf("Join of %q = %q, want %q", test.parts, got, test.want)
		}
	}
}

// split parses a joined key. That works for every key, which proves that no two lists of parts have
// the same one.
func split(key string) (parts []string) {
	part := ""
	for i := 0; i < len(key); i++ {
		switch key[i] {
		case '~':
			i++
			part += key[i : i+1]
		case ':':
			parts, part = append(parts, part), ""
		default:
			part += key[i : i+1]
		}
	}
	return append(parts, part)
}

func FuzzJoin(f *testing.F) {
	for _, seed := range [][2][]string{
		{{"a", "b:c"}, {"a:b", "c"}},
		{{"a", ""}, {"a"}},
		{{"a:"}, {"a", ""}},
		{{"", ""}, {":"}},
		{{"a~", "b"}, {"a", "~b"}},
		{{"a~:b"}, {"a~", "b"}},
		{{"a~~"}, {"a~"}},
		{{"~:"}, {"~", ""}},
		{{"a", "b", "c"}, {"a", "b:c"}},
		{{"a", "b"}, {"a", "b"}},
		{{"\xff", "\x00"}, {"\xff:\x00"}},
		{{"", "", ""}, {"", ":"}},
	} {
		a, b := [3]string{}, [3]string{}
		copy(a[:], seed[0])
		copy(b[:], seed[1])
		f.Add(uint8(len(seed[0])), a[0], a[1], a[2], uint8(len(seed[1])), b[0], b[1], b[2])
	}
	f.Fuzz(func(t *testing.T, n uint8, a0, a1, a2 string, m uint8, b0, b1, b2 string) {
		a := []string{a0, a1, a2}[:1+(n+2)%3] // 1 to 3 parts, n itself for the seeds
		b := []string{b0, b1, b2}[:1+(m+2)%3]
		keyA, keyB := joined(t, a...), joined(t, b...)
		if (keyA == keyB) != slices.Equal(a, b) {
			t.Errorf("Join of %q = %q, of %q = %q", a, keyA, b, keyB)
		}
		if got := split(keyA); !slices.Equal(got, a) {
			t.Errorf("Join of %q = %q, which can be read as %q", a, keyA, got)
		}

		// A Join as part of a Join: other lists have other keys.
		nested := joined(t, keyA, keyB)
		if outer := split(nested); len(outer) != 2 || !slices.Equal(split(outer[0]), a) || !slices.Equal(split(outer[1]), b) {
			t.Errorf("Join of the Joins of %q and %q = %q, which can be read as %q", a, b, nested, outer)
		}
	})
}

func TestNestedJoin(t *testing.T) {
	t.Parallel()
	r := get("/?a=x:y&b=z")
	flat := Join(Query("a"), Query("b"), Const("c"))
	nested := Join(Join(Query("a"), Query("b")), Const("c"))
	twice := Join(Join(Join(Query("a"), Query("b")), Const("c")))
	for fn, want := range map[*Func]string{
		&flat:   "x~:y:z:c",
		&nested: "x~~~:y~:z:c",
		&twice:  "x~~~~~~~:y~~~:z~:c",
	} {
		key, err := (*fn)(r)
		answer{key: want}.check(t, key, err)
	}
}

// Every combinator returns errors unchanged.
func TestErrorsPass(t *testing.T) {
	t.Parallel()
	missing := newError(ErrMissing, "header X is missing")
	own := errors.New("database is down")
	for _, err := range []error{ErrSkip, missing, ErrInvalid, ErrNoRoute, own, fmt.Errorf("weekend: %w", ErrSkip)} {
		for name, fn := range map[string]Func{
			"Join, only":  Join(give("", err)),
			"Join, first": Join(give("", err), give("b", nil)),
			"Join, last":  Join(give("a", nil), give("", err)),
			"Prefix":      Prefix("p:", give("", err)),
			"Hash":        Hash(give("", err)),
			"all":         Prefix("p:", Hash(Join(give("a", nil), Join(give("", err))))),
			"with a key":  Join(give("ignored", err)),
		} {
			if key, got := fn(get("/")); key != "" || got != err {
				t.Errorf("%s: %q, %v; want no key, and the error %v", name, key, got, err)
			}
		}
	}
}

// The parts are called in order until one fails.
func TestJoinStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	asked := 0
	counting := func(err error) Func {
		return func(*http.Request) (string, error) { asked++; return "k", err }
	}
	_, err := Join(counting(nil), counting(first), counting(second), counting(nil))(get("/"))
	if err != first || asked != 2 {
		t.Errorf("error %v after %d parts, want %v after 2", err, asked, first)
	}
	if _, err := Join(give("", ErrMissing), give("", ErrSkip))(get("/")); err != ErrMissing {
		t.Errorf("error %v, want ErrMissing: it is the first", err)
	}
	if _, err := Join(give("", ErrSkip), give("", ErrMissing))(get("/")); err != ErrSkip {
		t.Errorf("error %v, want ErrSkip: it is the first", err)
	}
}

func TestJoinKeepsItsParts(t *testing.T) {
	t.Parallel()
	parts := []Func{Const("a"), Const("b")}
	fn := Join(parts...)
	parts[1] = Const("changed")
	key, err := fn(get("/"))
	answer{key: "a:b"}.check(t, key, err)
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ prefix, key, want string }{
		"plain":         {"order:", "42", "order:42"},
		"empty":         {"", "42", "42"},
		"not escaped":   {"a~:", "b:c", "a~:b:c"},
		"no colon":      {"order", "42", "order42"},
		"of an own key": {"order:", "", "order:"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := Prefix(test.prefix, give(test.key, nil))(get("/"))
			answer{key: test.want}.check(t, key, err)
		})
	}
}

func TestConst(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"all", " ", "a:b~{c}%"} {
		for _, r := range []*http.Request{get("/"), get("/other"), nil} {
			key, err := Const(want)(r)
			answer{key: want}.check(t, key, err)
		}
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"":    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	} {
		got, err := Hash(give(key, nil))(get("/"))
		answer{key: want}.check(t, got, err)
	}
	long := strings.Repeat("a:~{}\x00", 100_000)
	got, err := Hash(give(long, nil))(get("/"))
	answer{key: fmt.Sprintf("%x", sha256.Sum256([]byte(long)))}.check(t, got, err)
}

func TestFirstOf(t *testing.T) {
	t.Parallel()
	header, query := newError(ErrMissing, "header X is missing"), newError(ErrMissing, `query parameter "x" is empty`)
	invalid, own := newError(ErrInvalid, "header X is given more than once"), errors.New("database is down")
	tests := map[string]struct {
		sources []Func
		want    answer
	}{
		"only":              {[]Func{give("42", nil)}, answer{key: "1:42"}},
		"first":             {[]Func{give("42", nil), give("43", nil)}, answer{key: "1:42"}},
		"second":            {[]Func{give("", header), give("42", nil)}, answer{key: "2:42"}},
		"twelfth":           {append(slices.Repeat([]Func{give("", header)}, 11), give("42", nil)), answer{key: "12:42"}},
		"not escaped":       {[]Func{give("1:4~2", nil)}, answer{key: "1:1:4~2"}},
		"nested":            {[]Func{give("", header), FirstOf(give("", query), give("42", nil))}, answer{key: "2:2:42"}},
		"in vain":           {[]Func{give("", header), give("", query)}, answer{kind: ErrMissing, text: `header X is missing; query parameter "x" is empty`}},
		"in vain, nested":   {[]Func{FirstOf(give("", header)), give("", query)}, answer{kind: ErrMissing, text: `header X is missing; query parameter "x" is empty`}},
		"without a detail":  {[]Func{give("", header), give("", ErrMissing)}, answer{kind: ErrMissing, text: "header X is missing; source 2 has no key"}},
		"wrapped":           {[]Func{give("", fmt.Errorf("user: %w", ErrMissing)), give("42", nil)}, answer{key: "2:42"}},
		"empty is missing":  {[]Func{give("", nil), give("42", nil)}, answer{key: "2:42"}},
		"empty, in vain":    {[]Func{give("", nil)}, answer{kind: ErrMissing, text: "source 1 has no key"}},
		"invalid":           {[]Func{give("", invalid), give("42", nil)}, answer{kind: ErrInvalid, text: "header X is given more than once"}},
		"missing, invalid":  {[]Func{give("", header), give("", invalid), give("42", nil)}, answer{kind: ErrInvalid, text: "header X is given more than once"}},
		"valid, so be it":   {[]Func{give("42", nil), give("", invalid)}, answer{key: "1:42"}},
		"not to be skipped": {[]Func{give("", header), give("42", nil), give("", ErrSkip)}, answer{key: "2:42"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := FirstOf(test.sources...)(get("/"))
			test.want.check(t, key, err)
		})
	}
	for _, err := range []error{ErrSkip, ErrNoRoute, own} {
		if key, got := FirstOf(give("", header), give("", err), give("42", nil))(get("/")); key != "" || got != err {
			t.Errorf("%q, %v; want the error %v", key, got, err)
		}
	}
}

// A guest who sends 42 does not get the key of user 42.
func TestFirstOfKeepsSourcesApart(t *testing.T) {
	t.Parallel()
	key := FirstOf(Context(userKey{}), Header("X-Guest"))
	user := get("/")
	user = user.WithContext(context.WithValue(user.Context(), userKey{}, "42"))
	seen := map[string]string{}
	for name, guest := range map[string]string{"plain": "42", "numbered": "1:42", "escaped": "1~:42"} {
		r := get("/")
		r.Header.Set("X-Guest", guest)
		k, err := key(r)
		if err != nil {
			t.Fatal(err)
		}
		seen[k] = name
	}
	k, err := key(user)
	if err != nil || seen[k] != "" || len(seen) != 3 {
		t.Errorf("the user's key is %q, %v; the guests' are %v", k, err, seen)
	}
}

func TestFirstOfKeepsItsSources(t *testing.T) {
	t.Parallel()
	sources := []Func{Const("a")}
	fn := FirstOf(sources...)
	sources[0] = Const("changed")
	key, err := fn(get("/"))
	answer{key: "1:a"}.check(t, key, err)
}

func BenchmarkJoin(b *testing.B) {
	r := get("/orders/42")
	r.Header.Set("X-Tenant", "tenant1")
	r.Pattern = "/orders/{id}"
	r.SetPathValue("id", "42")
	for name, fn := range map[string]Func{
		"header and path": Join(Header("X-Tenant"), PathValue("id")),
		"five parts":      Join(Const("order"), Method(), Pattern(), Header("X-Tenant"), PathValue("id")),
		"escaping":        Join(Const("a:b:c:d"), Const("~~~~")),
		"long":            Join(Const(strings.Repeat("x", 1000)), PathValue("id")),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := fn(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
