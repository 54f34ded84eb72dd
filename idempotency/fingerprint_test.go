package idempotency

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func fingerprintOf(f Fingerprint, change func(*http.Request), body string) [fingerprintSize]byte {
	r := httptest.NewRequest("POST", "/orders/1?a=1", nil)
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	return fingerprint(f, r, []byte(body))
}

func TestFingerprint_Bodies(t *testing.T) {
	t.Parallel()
	fields := FingerprintFields("/amount", "/items/0", "/a~1b/~0")
	for _, test := range []struct {
		name string
		f    Fingerprint
		a, b string
		same bool
	}{
		{"whole", FingerprintBody, `{"a":1}`, `{"a":1}`, true},
		{"whole", FingerprintBody, `{"a":1}`, `{"a":1} `, false},
		{"whole", FingerprintBody, "", "\x00", false},
		{"whole", FingerprintBody, strings.Repeat("x", 100_000) + "a", strings.Repeat("x", 100_000) + "b", false},
		{"JSON", FingerprintJSON, `{"a":1,"b":2}`, "\n{ \"b\" : 2 , \"a\":1}\t", true},
		{"JSON", FingerprintJSON, `"é/<\""`, `"\u00e9\/\u003c\u0022"`, true},
		{"JSON", FingerprintJSON, `[[],{}]`, `[{},[]]`, false},
		{"JSON", FingerprintJSON, `[]`, `{}`, false},
		{"JSON", FingerprintJSON, `[]`, `null`, false},
		{"JSON", FingerprintJSON, `1`, `"1"`, false},
		{"JSON", FingerprintJSON, `9007199254740993`, `9007199254740992`, false},
		{"JSON", FingerprintJSON, `1`, `1.0`, false},
		{"JSON", FingerprintJSON, `true`, `false`, false},
		{"JSON", FingerprintJSON, `[1,2]`, `[2,1]`, false},
		{"JSON", FingerprintJSON, `[1,2]`, `[12]`, false},
		{"JSON", FingerprintJSON, `{"a":1}`, `{"a":1,"A":2}`, false},
		{"JSON, a name twice", FingerprintJSON, `{"a":1,"a":2}`, `{"a":2}`, false},
		{"JSON, a name twice", FingerprintJSON, `{"a":1,"a":2}`, `{"a":1, "a":2}`, false},
		{"JSON, a name twice further in", FingerprintJSON, `[{"b":{"a":1,"\u0061":2}}]`, `[{"b":{"a":2}}]`, false},
		{"JSON, a name in two cases", FingerprintJSON, `{"a":1,"A":2}`, `{"a":1, "A":2}`, false},
		{"JSON, a name in three letters for one", FingerprintJSON, `{"k":1,"\u212a":2}`, `{"k":1, "\u212a":2}`, false},
		{"JSON, lone surrogates", FingerprintJSON, `"\ud800"`, `"\ud801"`, false},
		{"JSON, lone surrogates", FingerprintJSON, `{"\ud800":1}`, `{"\ufffd":1}`, false},
		{"JSON, not UTF-8", FingerprintJSON, "\"\xff\"", "\"\xfe\"", false},
		{"JSON, more behind", FingerprintJSON, `{} {}`, `{}`, false},
		{"no JSON", FingerprintJSON, `a=1&b=2`, `a=1&b=2`, true},
		{"no JSON", FingerprintJSON, `a=1&b=2`, `b=2&a=1`, false},
		{"nothing", FingerprintJSON, ``, `null`, false},
		{"too deep", FingerprintJSON, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), strings.Repeat("[", 20_000) + " " + strings.Repeat("]", 20_000), false},
		{"deep", FingerprintJSON, strings.Repeat("[", 9000) + strings.Repeat("]", 9000), strings.Repeat("[", 9000) + " " + strings.Repeat("]", 9000), true},
		{"fields", fields, `{"amount":1}`, `{"amount": 1, "note":"x"}`, true},
		{"fields", fields, `{"amount":1}`, `{"amount":2}`, false},
		{"fields", fields, `{"amount":1}`, `{}`, false},
		{"fields", fields, `{"amount":null}`, `{}`, false},
		{"fields", fields, `{"amount":{"value":1,"of":"eur"}}`, `{"amount":{"of":"eur","value":1}}`, true},
		{"fields", fields, `{"amount":1,"items":[1,2]}`, `{"amount":1,"items":[1,3]}`, true},
		{"fields", fields, `{"amount":1,"items":[1]}`, `{"amount":1,"items":[2]}`, false},
		{"fields", fields, `{"amount":1,"items":1}`, `{"amount":1}`, true},
		{"fields", fields, `{"a/b":{"~":1}}`, `{"a/b":{"~":2}}`, false},
		{"fields", fields, `{"amount":1,"amount":2}`, `{"amount":2}`, false},
		{"fields", fields, `no JSON`, `no  JSON`, false},
		{"fields", FingerprintFields("/0"), `[1]`, `[2]`, false},
		{"fields", FingerprintFields("/00"), `[1]`, `[2]`, true},
		{"fields", FingerprintFields("/-1"), `[1]`, `[2]`, true},
		{"fields", FingerprintFields(""), `[1]`, `[ 1 ]`, true},
		{"fields", FingerprintFields(""), `[1]`, `[2]`, false},
		{"fields, in another case", fields, `{"Amount":1}`, `{"Amount":2}`, false},
		{"fields, in another case further in", FingerprintFields("/a/b"), `{"a":{"B":1}}`, `{"a":{"B":2}}`, false},
		{"fields, in two cases", fields, `{"amount":1,"AMOUNT":2}`, `{"amount":1,"AMOUNT":3}`, false},
		{"fields, other ones in another case", fields, `{"amount":1,"Note":1}`, `{"amount":1,"Note":2}`, true},
		{"none", FingerprintNone, `1`, `2`, true},
	} {
		if same := fingerprintOf(test.f, nil, test.a) == fingerprintOf(test.f, nil, test.b); same != test.same {
			t.Errorf("%s: %.40q and %.40q are the same request: %v", test.name, test.a, test.b, same)
		}
	}
}

func TestFingerprint_Requests(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http.Request){
		"method":           func(r *http.Request) { r.Method = "PATCH" },
		"path":             func(r *http.Request) { r.URL.Path = "/orders/2" },
		"mount":            func(r *http.Request) { r.RequestURI, r.URL.Path = "/v1/orders/1", "/orders/1" },
		"query":            func(r *http.Request) { r.URL.RawQuery = "a=2" },
		"Content-Type":     func(r *http.Request) { r.Header.Set("Content-Type", "text/json") },
		"no Content-Type":  func(r *http.Request) { r.Header.Del("Content-Type") },
		"Content-Encoding": func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		"moved": func(r *http.Request) {
			r.Header["Content-Encoding"] = r.Header["Content-Type"]
			r.Header.Del("Content-Type")
		},
		"other headers": func(r *http.Request) { r.Header.Set("User-Agent", "another") },
	} {
		for kind, f := range map[string]Fingerprint{"whole": FingerprintBody, "JSON": FingerprintJSON, "fields": FingerprintFields("/a"), "none": FingerprintNone} {
			counts := map[string]bool{
				"method": true, "path": true, "mount": true, "other headers": false, "query": kind == "whole" || kind == "JSON",
			}
			want, known := counts[name]
			if !known {
				want = kind == "whole"
			}
			if differs := fingerprintOf(f, change, `{"a":1}`) != fingerprintOf(f, nil, `{"a":1}`); differs != want {
				t.Errorf("%s: another %s is another request: %v", kind, name, differs)
			}
		}
	}
	for name, counts := range map[string]bool{
		"Accept": true, "If-Match": true, "If-None-Match": true, "If-Modified-Since": true, "If-Unmodified-Since": true, "If-Range": true, "Range": true,
		"Accept-Encoding": false, "Accept-Language": false, "Authorization": false, "Cookie": false, "User-Agent": false, "Prefer": false, "Traceparent": false,
	} {
		with := func(values ...string) func(*http.Request) {
			return func(r *http.Request) { r.Header[name] = values }
		}
		for kind, f := range map[string]Fingerprint{"whole": FingerprintBody, "JSON": FingerprintJSON, "fields": FingerprintFields("/a"), "none": FingerprintNone} {
			prints := make(map[[fingerprintSize]byte]bool)
			for _, change := range []func(*http.Request){nil, with("1"), with("2"), with(""), with("1", "2"), with("1, 2"), with("1", "Range")} {
				prints[fingerprintOf(f, change, `{"a":1}`)] = true
			}
			want := 1
			if counts && kind != "none" {
				want = 7
			}
			if len(prints) != want {
				t.Errorf("%s: 7 requests with other headers %s have %d fingerprints, want %d", kind, name, len(prints), want)
			}
		}
	}
	moved := make(map[[fingerprintSize]byte]bool)
	for _, name := range conditions {
		moved[fingerprintOf(FingerprintJSON, func(r *http.Request) { r.Header.Set(name, "1") }, "1")] = true
	}
	if len(moved) != len(conditions) {
		t.Errorf("%d headers with one value have %d fingerprints", len(conditions), len(moved))
	}
	at := func(path string) [fingerprintSize]byte {
		return fingerprint(FingerprintBody, httptest.NewRequest("POST", path, nil), nil)
	}
	if at("/x%2Fy/z") == at("/x/y%2Fz") || at("/x%2fy/z") == at("/x/y/z") {
		t.Error("a slash within a segment counts as one between two")
	}
	if at("/x%2Fy/z") != at("/%78%2fy/z") {
		t.Error("another spelling is another path")
	}
	if fingerprintOf(FingerprintJSON, nil, "1") == fingerprintOf(FingerprintBody, nil, "1") || fingerprintOf(FingerprintFields("/a"), nil, "1") == fingerprintOf(FingerprintFields("/b"), nil, "1") {
		t.Error("two kinds of fingerprints are equal")
	}
}

// Pointers may lead through the values of others, and twice to one value.
func TestFingerprintFields_PointersWithinEachOther(t *testing.T) {
	t.Parallel()
	f := FingerprintFields("", "/a", "/a/b", "/a")
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{`{"a":{"b":1,"c":2}}`, `{"a":{"c":2,"b":1}}`, true},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, false},
		{`{"a":{"b":1}}`, `{"a":{"b":2}}`, false},
		{`{"a":{"b":1}}`, `{"a":{"b":1},"d":1}`, false},
	} {
		if same := fingerprintOf(f, nil, test.a) == fingerprintOf(f, nil, test.b); same != test.same {
			t.Errorf("%s and %s are the same request: %v, want %v", test.a, test.b, same, test.same)
		}
	}
}

// No shape of a body takes much more memory than the body.
// It is not parallel, because it counts what the process allocates.
func TestFingerprintJSON_Memory(t *testing.T) {
	r := httptest.NewRequest("POST", "/orders/1", nil)
	for shape, body := range worstBodies() {
		document := []byte(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sum := fingerprint(FingerprintJSON, r, document)
		runtime.ReadMemStats(&after)
		if sum != fingerprint(FingerprintJSON, r, append(document, ' ')) {
			t.Errorf("%s: the body is compared byte for byte, want it compared as JSON", shape)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 7*uint64(len(document)) {
			t.Errorf("%s: %d bytes are allocated for a body of %d, want at most 7 times as many", shape, used, len(document))
		}
	}
}

// Equal bodies have one fingerprint. By FingerprintBody no others do, and by FingerprintJSON only
// those from which encoding/json reads the same value.
func FuzzFingerprint(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1}`, `{ "a" : 1 }`}, {`{"a":1}`, `{"a":1.0}`}, {`{"a":1,"a":2}`, `{"a":2}`}, {`{"a":1}`, `{"A":1}`},
		{`"\u0061"`, `"a"`}, {"[1,2]", "[2,1]"}, {`""`, "null"}, {"{", "{"}, {`"\ud800"`, `"\ufffd"`}, {"", ""},
	} {
		f.Add(seed[0], seed[1])
	}
	unchanged := func(*http.Request) {}
	f.Fuzz(func(t *testing.T, a, b string) {
		if same := fingerprintOf(FingerprintBody, unchanged, a) == fingerprintOf(FingerprintBody, unchanged, b); same != (a == b) {
			t.Errorf("FingerprintBody of %q and %q: same %v", a, b, same)
		}
		for what, print := range map[string]Fingerprint{"FingerprintJSON": FingerprintJSON, "FingerprintFields": FingerprintFields("/a", "/b/0")} {
			same := fingerprintOf(print, unchanged, a) == fingerprintOf(print, unchanged, b)
			if a == b && !same {
				t.Errorf("%s of %q differs from itself", what, a)
			}
			if x, y := valueOf(a), valueOf(b); what == "FingerprintJSON" && same && !reflect.DeepEqual(x, y) {
				t.Errorf("%s takes %q for %q", what, a, b)
			}
		}
		if fingerprintOf(FingerprintNone, unchanged, a) != fingerprintOf(FingerprintNone, unchanged, b) {
			t.Errorf("FingerprintNone tells %q from %q", a, b)
		}
	})
}

// valueOf is what encoding/json reads, or the text itself if that is not JSON.
func valueOf(text string) (value any) {
	in := json.NewDecoder(strings.NewReader(text))
	in.UseNumber()
	if in.Decode(&value) != nil {
		return text
	}
	if _, err := in.Token(); err != io.EOF {
		return text
	}
	return value
}
