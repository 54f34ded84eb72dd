package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
)

func TestCookie(t *testing.T) {
	t.Parallel()
	missing := answer{kind: ErrMissing, text: `cookie "sid" is missing`}
	empty := answer{kind: ErrMissing, text: `cookie "sid" is empty`}
	repeated := answer{kind: ErrInvalid, text: `cookie "sid" is given more than once`}
	malformed := answer{kind: ErrInvalid, text: `cookie "sid" is malformed`}
	tests := []struct {
		lines []string
		want  answer
	}{
		{nil, missing},
		{[]string{""}, missing},
		{[]string{"a=1; b=2"}, missing},
		{[]string{"SID=7"}, missing},
		{[]string{"sid2=7; xsid=7"}, missing},
		{[]string{"a=sid=7"}, missing},
		{[]string{"sid"}, empty},
		{[]string{"sid="}, empty},
		{[]string{`sid=""`}, empty},
		{[]string{"sid=7"}, answer{key: "7"}},
		{[]string{"a=1;sid=7 ; b=2"}, answer{key: "7"}},
		{[]string{"a=1", "sid=7", "b=2"}, answer{key: "7"}},
		{[]string{" sid =7"}, answer{key: "7"}},
		{[]string{`sid="7"`}, answer{key: "7"}},
		{[]string{"sid=a=b%2F"}, answer{key: "a=b%2F"}},
		{[]string{"sid=7; sid=8"}, repeated},
		{[]string{"sid=7; sid=7"}, repeated},
		{[]string{"sid=7", "sid=8"}, repeated},
		{[]string{"sid=7; sid"}, repeated},
		{[]string{"sid=7; sid=\"8"}, repeated}, // net/http sees one, others two
		{[]string{"sid=7; sid =8"}, repeated},
		{[]string{"sid=\"7"}, malformed},
		{[]string{"sid=7\\8"}, malformed},
		{[]string{"sid=\xff"}, malformed},
		{[]string{"sid=7\x00"}, malformed},
		{[]string{"sid=ü"}, malformed},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%q", test.lines), func(t *testing.T) {
			t.Parallel()
			r := get("/")
			r.Header["Cookie"] = test.lines
			key, err := Cookie("sid")(r)
			test.want.check(t, key, err)
			if cookie, err := r.Cookie("sid"); key != "" && (err != nil || cookie.Value != key) {
				t.Errorf("the handler reads %v, %v", cookie, err)
			}
		})
	}
}

// A key is what net/http reads, from a header that holds the cookie exactly once.
func FuzzCookie(f *testing.F) {
	for _, seed := range []string{"id=1", `id="1"`, "id=1; id=1", "id=1;id=2", " id = 1", "ID=1", "id", "id=", "x=y; id=a,b", "id=\x00", "id=\xff"} {
		f.Add(seed)
	}
	key := Cookie("id")
	f.Fuzz(func(t *testing.T, header string) {
		r := &http.Request{Header: http.Header{"Cookie": {header}}}
		got, err := key(r)
		if err != nil {
			if got != "" || !errors.Is(err, ErrMissing) && !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %q, %v", header, got, err)
			}
			return
		}
		if cookie, err := r.Cookie("id"); err != nil || cookie.Value != got || got == "" || len(r.CookiesNamed("id")) != 1 {
			t.Errorf("%q gives %q, and %v by net/http (%v)", header, got, cookie, err)
		}
	})
}
