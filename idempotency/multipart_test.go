package idempotency

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// as sets the Content-Type of a request.
func as(contentType string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Content-Type", contentType) }
}

// Forms with the same parts are the same request, and others are not.
func TestFingerprint_Multipart(t *testing.T) {
	t.Parallel()
	const (
		title  = "--b\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nx\r\n"
		amount = "--b\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n50\r\n"
		end    = "--b--\r\n"
		form   = title + amount + end
	)
	same := func(text string) string { return strings.ReplaceAll(text, "--b", "--another") }
	for name, test := range map[string]struct {
		aType, a, bType, b string
		same               bool
	}{
		"another boundary":            {"", form, "multipart/form-data; boundary=another", same(form), true},
		"another spelling of a type":  {"", form, `Multipart/Form-Data;  Boundary="b"`, form, true},
		"another spelling of headers": {"", form, "", strings.ReplaceAll(form, "Content-Disposition: ", "content-disposition:\t"), true},
		"headers in another order": {
			"", "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n--b--", "", "--b\r\nB: 2\r\nA: 1\r\n\r\nx\r\n--b--", true,
		},
		"before and behind the parts": {"", form, "", "preamble\r\n" + form + "epilogue", true},
		"other content":               {"", form, "", strings.Replace(form, "50", "70", 1), false},
		"another name":                {"", form, "", strings.Replace(form, "title", "total", 1), false},
		"another order":               {"", form, "", amount + title + end, false},
		"a part more":                 {"", form, "", title + amount + amount + end, false},
		"a part fewer":                {"", form, "", title + end, false},
		"no parts":                    {"", form, "", end, false},
		"a header more":               {"", form, "", strings.Replace(form, "\r\n\r\nx", "\r\nContent-Type: text/plain\r\n\r\nx", 1), false},
		"a header twice":              {"", "--b\r\nA: 1\r\nA: 2\r\n\r\n--b--", "", "--b\r\nA: 1, 2\r\n\r\n--b--", false},
		"quoted-printable": {
			"", "--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=61\r\n--b--",
			"", "--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na\r\n--b--", false,
		},
		"quoted-printable or not":               {"", "--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na\r\n--b--", "", "--b\r\n\r\na\r\n--b--", false},
		"a header as content":                   {"", "--b\r\nA: 1\r\n\r\nx\r\n--b--", "", "--b\r\n\r\nA: 1\r\n\r\nx\r\n--b--", false},
		"content of the part before":            {"", "--b\r\n\r\nxy\r\n--b\r\n\r\nz\r\n--b--", "", "--b\r\n\r\nx\r\n--b\r\n\r\nyz\r\n--b--", false},
		"cut off":                               {"", form, "", strings.TrimSuffix(form, end), false},
		"cut off in its last boundary":          {"", form, "", strings.TrimSuffix(form, "--\r\n"), false},
		"cut off in its last boundary, another": {"", strings.TrimSuffix(form, "--\r\n"), "multipart/form-data; boundary=another", strings.TrimSuffix(same(form), "--\r\n"), false},
		"another type":                          {"", form, "multipart/mixed; boundary=b", form, false},
		"another parameter":                     {"multipart/related; boundary=b; start=1", form, "multipart/related; boundary=b; start=2", form, false},
		"a parameter more":                      {"", form, "multipart/form-data; boundary=b; charset=utf-8", form, false},
		"parameters as others":                  {"multipart/related; boundary=b; c=d", form, "multipart/related; boundary=b; d=c", form, false},
		"no boundary":                           {"multipart/form-data", form, "multipart/form-data; x=y", form, false},
		"a malformed type":                      {"multipart/form-data; boundary=b; boundary=c", form, "multipart/form-data; boundary=b; boundary=d", form, false},
		"its boundary in another one":           {"", form, "multipart/form-data; boundary=another", form, false},
		"no multipart":                          {"text/plain; boundary=b", form, "text/plain; boundary=another", same(form), false},
		"multipart inside": {
			"", "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--",
			"", "--b\r\nContent-Type: multipart/mixed; boundary=d\r\n\r\n--d\r\n\r\nx\r\n--d--\r\n--b--", false,
		},
		"1,000 parts":        {"", strings.Repeat(title, 1000) + end, "multipart/form-data; boundary=another", same(strings.Repeat(title, 1000) + end), true},
		"1,001 parts":        {"", strings.Repeat(title, 1001) + end, "multipart/form-data; boundary=another", same(strings.Repeat(title, 1001) + end), false},
		"1,001 parts, again": {"", strings.Repeat(title, 1001) + end, "", strings.Repeat(title, 1001) + end, true},
		"10,000 headers":     {"", headers(100, 100), "", headers(100, 100) + "epilogue", true},
		"10,100 headers":     {"", headers(101, 100), "", headers(101, 100) + "epilogue", false},
	} {
		kind := func(contentType string) func(*http.Request) {
			if contentType == "" {
				contentType = "multipart/form-data; boundary=b"
			}
			return as(contentType)
		}
		for what, f := range map[string]Fingerprint{"FingerprintBody": FingerprintBody, "FingerprintJSON": FingerprintJSON, "FingerprintFields": FingerprintFields("/a")} {
			if same := fingerprintOf(f, kind(test.aType), test.a) == fingerprintOf(f, kind(test.bType), test.b); same != test.same {
				t.Errorf("%s, %s: the forms are the same request: %v", name, what, same)
			}
		}
	}
}

// headers returns parts with some header lines each.
func headers(parts, lines int) string {
	return strings.Repeat("--b\r\n"+strings.Repeat("A: 1\r\n", lines)+"\r\n\r\n", parts) + "--b--\r\n"
}

// What an encoded body has between boundaries are no parts: a handler would decode it first.
func TestFingerprint_MultipartEncoded(t *testing.T) {
	t.Parallel()
	encoded := func(r *http.Request) {
		as("multipart/form-data; boundary=b")(r)
		r.Header.Set("Content-Encoding", "gzip")
	}
	const parts = "--b\r\n\r\nx\r\n--b--\r\n"
	if fingerprintOf(FingerprintBody, encoded, "one archive\r\n"+parts) == fingerprintOf(FingerprintBody, encoded, "another\r\n"+parts) {
		t.Error("two encoded bodies are the same request")
	}
}

// A form and bytes that read like its sum are different requests.
func TestFingerprint_MultipartAndBytes(t *testing.T) {
	t.Parallel()
	const form = "--b\r\n\r\nx\r\n--b--\r\n"
	prints := make(map[[fingerprintSize]byte]string)
	for _, contentType := range []string{"multipart/form-data; boundary=b", "multipart/form-data; boundary=c", "multipart/form-data", "text/plain", ""} {
		sum := fingerprintOf(FingerprintBody, as(contentType), form)
		if other, taken := prints[sum]; taken {
			t.Errorf("%q and %q have the same fingerprint", contentType, other)
		}
		prints[sum] = contentType
	}
}

// The contents of parts take no memory. Their headers take what mime/multipart takes for them.
// It is not parallel, because it counts what the process allocates.
func TestFingerprint_MultipartMemory(t *testing.T) {
	r := httptest.NewRequest("POST", "/orders/1", nil)
	r.Header.Set("Content-Type", formType)
	for shape, form := range worstForms() {
		most := uint64(64 << 10)
		if strings.Contains(shape, "header") || strings.Contains(shape, "parts") {
			most = 8 << 20
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sum := fingerprint(FingerprintBody, r, form)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > most {
			t.Errorf("%s: %d bytes are allocated for a form of %d, want at most %d", shape, used, len(form), most)
		}
		if sum != fingerprint(FingerprintBody, r, append(form, "epilogue"...)) {
			t.Errorf("%s: the form is compared byte for byte, want it compared by its parts", shape)
		}
	}
}

// Two bodies have one fingerprint if they are equal, or if mime/multipart reads the same parts from
// them.
func FuzzFingerprint_Multipart(f *testing.F) {
	for _, seed := range [][2]string{
		{"--b\r\n\r\nx\r\n--b--", "--c\r\n\r\nx\r\n--c--"},
		{"--b\nA: 1\n\nx\n--b--\n", "--c\r\nA:1\r\n\r\nx\r\n--c--"},
		{"--b\r\nA: 1\r\nA: 2\r\nB: 3\r\n\r\nx\r\n--b--", "--c\r\nA: 1\r\nB: 2\r\nB: 3\r\n\r\nx\r\n--c--"},
		{"--b\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--", "--c\r\n\r\nxy\r\n--c\r\n\r\n\r\n--c--"},
		{"--b\r\n\r\nx\r\n--b", "--c\r\n\r\nx\r\n--c\r\n"}, {"--b--", "--c--"}, {"", "--c--"}, {"--b\r\n\r\n--b--", "--c\r\n\r\n\r\n--c--"},
		{"--b\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=61\r\n--b--", "--c\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na\r\n--c--"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := partsOf(a, "b"), partsOf(b, "c")
		want := x != nil && y != nil && reflect.DeepEqual(x, y)
		got := fingerprintOf(FingerprintBody, as("multipart/mixed; boundary=b"), a) == fingerprintOf(FingerprintBody, as("multipart/mixed; boundary=c"), b)
		if got != want {
			t.Errorf("%q with the boundary b and %q with c are the same request: %v", a, b, got)
		}
		z := partsOf(b, "b")
		want = a == b || x != nil && z != nil && reflect.DeepEqual(x, z)
		got = fingerprintOf(FingerprintBody, as("multipart/mixed; boundary=b"), a) == fingerprintOf(FingerprintBody, as("multipart/mixed; boundary=b"), b)
		if got != want {
			t.Errorf("%q and %q are the same request: %v", a, b, got)
		}
		// A client that sends the same again.
		if x != nil {
			again, boundary := written(t, x)
			if fingerprintOf(FingerprintBody, as("multipart/mixed; boundary=b"), a) != fingerprintOf(FingerprintBody, as("multipart/mixed; boundary="+boundary), again) {
				t.Errorf("%q and its parts with another boundary, %q, are different requests", a, again)
			}
		}
	})
}

// A rawPart is one part as mime/multipart reads it.
type rawPart struct {
	header  textproto.MIMEHeader
	content string
}

// partsOf returns the parts of a body; nil: it cannot be read to its end, or exceeds a limit.
func partsOf(body, boundary string) []rawPart {
	parts, lines := []rawPart{}, 0
	for in := multipart.NewReader(strings.NewReader(body), boundary); ; {
		part, err := in.NextRawPart()
		if err == io.EOF {
			return parts
		}
		if err != nil {
			return nil
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil
		}
		for _, values := range part.Header {
			lines += len(values)
		}
		if parts = append(parts, rawPart{part.Header, string(content)}); len(parts) > maxParts || lines > maxPartHeaders {
			return nil
		}
	}
}

// written returns a form with these parts and a new boundary.
func written(t *testing.T, parts []rawPart) (body, boundary string) {
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for _, part := range parts {
		to, err := w.CreatePart(part.header)
		if err == nil {
			_, err = fmt.Fprint(to, part.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String(), w.Boundary()
}
