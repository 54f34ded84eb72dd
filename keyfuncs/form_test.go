package keyfuncs

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

const (
	formType      = "application/x-www-form-urlencoded"
	multipartType = "multipart/form-data; boundary=b"
	lastPart      = "--b--\r\n"
)

// part returns a field of a multipart form; file returns one with a file.
func part(name, value string) string {
	return fmt.Sprintf("--b\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", name, value)
}

func file(name, filename, content string) string {
	return fmt.Sprintf("--b\r\nContent-Disposition: form-data; name=%q; filename=%q\r\n\r\n%s\r\n", name, filename, content)
}

func postForm(mediaType, query, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/?"+query, strings.NewReader(body))
	r.Header.Set("Content-Type", mediaType)
	return r
}

func TestFormValue(t *testing.T) {
	t.Parallel()
	missing := answer{kind: ErrMissing, text: `form field "id" is missing`}
	empty := answer{kind: ErrMissing, text: `form field "id" is empty`}
	repeated := answer{kind: ErrInvalid, text: `form field "id" is given more than once`}
	malformed := answer{kind: ErrInvalid, text: `the body, which should hold form field "id", is malformed`}
	tests := []struct {
		query, body string
		want        answer
	}{
		{"", "id=7", answer{key: "7"}},
		{"", "a=1&%69d=%37&b=2", answer{key: "7"}},
		{"", "id=a+b%2Fc", answer{key: "a b/c"}},
		{"", "ID=7", missing},
		{"", "a=1", missing},
		{"", "id=", empty},
		{"id=8", "id=7", answer{key: "7"}}, // as Request.FormValue has it
		{"id=8", "a=1", missing},
		{"", "id=7&id=7", repeated},
		{"", "id=7&%69d=8", repeated},
		{"", "id=%zz", malformed},
		{"", "id=7&a=%", malformed},
		{"", "id=7;a=1", malformed},
		{"", "id=%00", answer{kind: ErrInvalid, text: `form field "id" has control characters in it`}},
		{"", "id=%ff", answer{kind: ErrInvalid, text: `form field "id" is not valid UTF-8`}},
	}
	for _, test := range tests {
		t.Run(test.query+" "+test.body, func(t *testing.T) {
			t.Parallel()
			key, err := FormValue("id")(postForm(formType, test.query, test.body))
			test.want.check(t, key, err)
		})
	}
}

func TestFormValueMultipart(t *testing.T) {
	t.Parallel()
	missing := answer{kind: ErrMissing, text: `form field "id" is missing`}
	isFile := answer{kind: ErrInvalid, text: `form field "id" is a file`}
	repeated := answer{kind: ErrInvalid, text: `form field "id" is given more than once`}
	malformed := answer{kind: ErrInvalid, text: `the body, which should hold form field "id", is malformed`}
	big := strings.Repeat("x", 300_000)
	tests := map[string]struct {
		mediaType, query, body string
		want                   answer
	}{
		"one":               {multipartType, "", part("id", "7") + lastPart, answer{key: "7"}},
		"among others":      {multipartType, "a=1", part("a", "") + part("id", "7") + file("f", "f.txt", big) + lastPart, answer{key: "7"}},
		"behind a file":     {multipartType, "", file("f", "f.txt", big) + part("id", "a/b") + lastPart, answer{key: "a/b"}},
		"no percent codes":  {multipartType, "", part("id", "%37") + lastPart, answer{key: "%37"}},
		"none":              {multipartType, "", part("a", "7") + lastPart, missing},
		"only in the query": {multipartType, "id=7", part("a", "7") + lastPart, missing},
		"empty":             {multipartType, "", part("id", "") + lastPart, answer{kind: ErrMissing, text: `form field "id" is empty`}},
		"in the query too":  {multipartType, "id=7", part("id", "7") + lastPart, answer{kind: ErrInvalid, text: `form field "id" is given in the query string as well`}},
		"twice":             {multipartType, "", part("id", "7") + part("id", "7") + lastPart, repeated},
		"a file":            {multipartType, "", file("id", "7", "7") + lastPart, isFile},
		"a file as well":    {multipartType, "", part("id", "7") + file("id", "f", "8") + lastPart, isFile},
		"two lines":         {multipartType, "", part("id", "7\r\n8") + lastPart, answer{kind: ErrInvalid, text: `form field "id" has control characters in it`}},
		"not UTF-8":         {multipartType, "", part("id", "\xff") + lastPart, answer{kind: ErrInvalid, text: `form field "id" is not valid UTF-8`}},
		"cut off":           {multipartType, "", part("id", "7"), malformed},
		"other boundary":    {"multipart/form-data; boundary=c", "", part("id", "7") + lastPart, malformed},
		"no boundary":       {"multipart/form-data", "", part("id", "7") + lastPart, malformed},
		"too many parts":    {multipartType, "", strings.Repeat(part("a", ""), 1000) + part("id", "7") + lastPart, malformed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := FormValue("id")(postForm(test.mediaType, test.query, test.body))
			test.want.check(t, key, err)
		})
	}
}

func TestFormValues(t *testing.T) {
	t.Parallel()
	for _, value := range clean {
		for _, r := range []*http.Request{
			postForm(formType, "", url.Values{"q": {value}}.Encode()),
			postForm(multipartType, "", part("q", value)+lastPart),
		} {
			key, err := FormValue("q")(r)
			answer{key: value}.check(t, key, err)
		}
	}
	for name, test := range unclean {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []*http.Request{
				postForm(formType, "", url.Values{"q": {test.value}}.Encode()),
				postForm(multipartType, "", part("q", test.value)+lastPart),
			} {
				key, err := FormValue("q")(r)
				answer{kind: ErrInvalid, text: `form field "q" ` + test.why}.check(t, key, err)
			}
		})
	}
}

// If a form was parsed before the guard, the parsed form is used, because the body is gone.
func TestFormThatWasParsedBefore(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		mediaType, method, body string
		want                    answer
	}{
		"form":        {formType, "PUT", "id=7", answer{key: "7"}},
		"form, twice": {formType, "POST", "id=7&id=8", answer{kind: ErrInvalid, text: `form field "id" is given more than once`}},
		// ParseForm leaves it alone.
		"form, DELETE":  {formType, "DELETE", "id=7", answer{key: "7"}},
		"multipart":     {multipartType, "POST", part("id", "7") + lastPart, answer{key: "7"}},
		"multipart, no": {multipartType, "POST", part("a", "7") + lastPart, answer{kind: ErrMissing, text: `form field "id" is missing`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := postForm(test.mediaType, "", test.body)
			r.Method = test.method
			r.FormValue("anything")
			key, err := FormValue("id")(r)
			test.want.check(t, key, err)
		})
	}
}

// Whenever there is a key, it is what the handler reads.
func FuzzFormValue(f *testing.F) {
	f.Add(false, "", "id=7")
	f.Add(false, "id=8", "a=%41&i%64=%37")
	f.Add(false, "", "id=7&id=8")
	f.Add(false, "", "id=7;id=8&%zz")
	f.Add(true, "", part("id", "7")+lastPart)
	f.Add(true, "id=8", part("id", "7")+lastPart)
	f.Add(true, "", file("id", "7", "8")+part("id", "7")+lastPart)
	f.Add(true, "%zz&id=5", "--b\r\nContent-Disposition: form-data; name=id\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=37\r\n--b--")
	f.Fuzz(func(t *testing.T, multipart bool, query, body string) {
		r := postForm(formType, "", body)
		if multipart {
			r.Header.Set("Content-Type", multipartType)
		}
		r.URL.RawQuery = query
		key, err := FormValue("id")(r)
		if err != nil {
			return
		}
		if got := r.PostFormValue("id"); got != key {
			t.Errorf("key %q, and the handler reads %q", key, got)
		}
		if got := r.FormValue("id"); got != key {
			t.Errorf("key %q, and the handler reads %q by FormValue", key, got)
		}
	})
}
