package keyfuncs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/reqlock/reqlock/internal/request"
)

// post returns a request with a body of unknown length.
func post(body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(body))
	r.ContentLength = -1
	return r
}

func postJSON(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// A probe is a body that records how it is read.
type probe struct {
	io.Reader
	bytes, ends, closes atomic.Int64
}

func (p *probe) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.bytes.Add(int64(n))
	if err != nil {
		p.ends.Add(1)
	}
	return n, err
}

func (p *probe) Close() error {
	p.closes.Add(1)
	return errors.New("closed by the probe")
}

const anyDocument = `{"id":"42","padding":"...."}`

// bodyFuncs are the sources that read bodies, each with a body that has a key.
var bodyFuncs = map[string]struct {
	fn        func(options ...BodyOption) Func
	mediaType string
	body      string
	key       string
}{
	"JSON":      {func(o ...BodyOption) Func { return JSON("/id", o...) }, "application/json", anyDocument, "42"},
	"form":      {func(o ...BodyOption) Func { return FormValue("id", o...) }, formType, "a=1&id=42&b=%20", "42"},
	"multipart": {func(o ...BodyOption) Func { return FormValue("id", o...) }, multipartType, part("id", "42") + part("b", "\x00\xff") + lastPart, "42"},
	"hash":      {BodyHash, "text/plain", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
}

func TestBodyIsThereForTheHandler(t *testing.T) {
	t.Parallel()
	for name, test := range bodyFuncs {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", name, chunked), func(t *testing.T) {
				t.Parallel()
				fn := test.fn()
				srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if got := r.ContentLength < 0; got != chunked {
						t.Errorf("chunked: %v", got)
					}
					key, err := fn(r)
					answer{key: test.key}.check(t, key, err)
					body, err := io.ReadAll(r.Body)
					if string(body) != test.body || err != nil {
						t.Errorf("the handler reads %q, %v; want %q", body, err, test.body)
					}
					if r.Form != nil || r.PostForm != nil || r.MultipartForm != nil {
						t.Error("the form has been parsed")
					}
					if err := r.Body.Close(); err != nil {
						t.Error(err)
					}
					if _, err := r.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose {
						t.Errorf("reading after Close: %v", err)
					}
				}))
				defer srv.Close()
				var body io.Reader = strings.NewReader(test.body)
				if chunked {
					body = iotest.OneByteReader(body)
				}
				resp, err := srv.Client().Post(srv.URL, test.mediaType, body)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			})
		}
	}
}

// The handler can parse the form that the key came from.
func TestHandlerParsesTheForm(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"form", "multipart"} {
		test := bodyFuncs[name]
		r := post(strings.NewReader(test.body))
		r.Header.Set("Content-Type", test.mediaType)
		for range 2 { // the second time there is a parsed form
			key, err := test.fn()(r)
			answer{key: test.key}.check(t, key, err)
			if got := r.FormValue("id"); got != "42" {
				t.Errorf("%s: the handler's FormValue is %q", name, got)
			}
		}
	}
}

func TestMaxBody(t *testing.T) {
	t.Parallel()
	for name, test := range bodyFuncs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			size := int64(len(test.body))
			for _, limit := range []int64{size, size + 1, math.MaxInt64 - 1, math.MaxInt64} {
				r := post(strings.NewReader(test.body))
				r.Header.Set("Content-Type", test.mediaType)
				key, err := test.fn(MaxBody(limit))(r)
				answer{key: test.key}.check(t, key, err)
			}
			for _, limit := range []int64{1, size - 1} {
				for _, known := range []int64{-1, size} {
					body := &probe{Reader: strings.NewReader(test.body)}
					r := httptest.NewRequest(http.MethodPost, "/", body)
					r.ContentLength = known
					r.Header.Set("Content-Type", test.mediaType)
					fn := test.fn(MaxBody(limit))
					for range 2 {
						key, err := fn(r)
						checkTooLarge(t, key, err, limit)
					}
					if read := body.bytes.Load(); known >= 0 && read > 0 || read > limit+1 {
						t.Errorf("%d bytes were read with a limit of %d and a Content-Length of %d", read, limit, known)
					}
					// A later Func with a larger limit finds the body unchanged.
					key, err := test.fn(MaxBody(size))(r)
					answer{key: test.key}.check(t, key, err)
					if rest, err := io.ReadAll(r.Body); string(rest) != test.body || err != nil {
						t.Errorf("the body is %q, %v afterwards", rest, err)
					}
					// A smaller limit still applies to a body that was read.
					key, err = fn(r)
					checkTooLarge(t, key, err, limit)
				}
			}
		})
	}
}

func checkTooLarge(t *testing.T, key string, err error, limit int64) {
	t.Helper()
	var tooLarge *http.MaxBytesError
	if key != "" || !errors.As(err, &tooLarge) || tooLarge.Limit != limit {
		t.Errorf("%q, %v; want an http.MaxBytesError with the limit %d", key, err, limit)
	}
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrMissing) {
		t.Errorf("%v is of another kind as well", err)
	}
	if detail, ok := Detail(err); !ok || !strings.HasSuffix(detail, fmt.Sprintf(", is larger than %d bytes", limit)) {
		t.Errorf("detail %q", detail)
	}
}

func TestDefaultMaxBody(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	key, err := BodyHash()(post(bytes.NewReader(make([]byte, limit))))
	answer{key: "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58"}.check(t, key, err)
	key, err = BodyHash()(post(bytes.NewReader(make([]byte, limit+1))))
	checkTooLarge(t, key, err, limit)
}

// An error of a limit set by an outer middleware is returned unchanged.
func TestMaxBytesReader(t *testing.T) {
	t.Parallel()
	r := post(strings.NewReader("0123456789"))
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 5)
	_, err := BodyHash()(r)
	var tooLarge *http.MaxBytesError
	if !errors.As(err, &tooLarge) || tooLarge.Limit != 5 {
		t.Errorf("error %v, want an http.MaxBytesError with the limit 5", err)
	}
}

// All sources of a Join and of an inner guard read the body once.
func TestBodyIsReadOnce(t *testing.T) {
	t.Parallel()
	body := &probe{Reader: strings.NewReader(anyDocument)}
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.Header.Set("Content-Type", "application/json")
	key := Join(JSON("/id"), BodyHash(), JSON("/padding"), FirstOf(JSON("/none"), JSON("/id", MaxBody(100))))
	first, err := key(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	inner := r.WithContext(t.Context())
	second, err := key(inner) // The key has the whole body, whatever the handler has read of it.
	answer{key: first}.check(t, second, err)
	if rest, err := io.ReadAll(inner.Body); string(rest) != anyDocument[5:] || err != nil {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if n, ends := body.bytes.Load(), body.ends.Load(); n != int64(len(anyDocument)) || ends != 1 {
		t.Errorf("%d bytes were read, to the end %d times; want %d, once", n, ends, len(anyDocument))
	}
	if err := inner.Body.Close(); err == nil || body.closes.Load() != 1 {
		t.Errorf("Close: %v, and %d calls of the original's", err, body.closes.Load())
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	read := Body(MaxBody(4))
	if body, err := read(httptest.NewRequest(http.MethodGet, "/", nil)); body != nil || err != nil {
		t.Errorf("no body: %q, %v", body, err)
	}
	r := post(strings.NewReader("1234"))
	if body, err := read(r); string(body) != "1234" || err != nil || !request.IsBodyRead(r) {
		t.Errorf("%q, %v", body, err)
	}
	r = post(strings.NewReader("12345"))
	var tooLarge *http.MaxBytesError
	if body, err := read(r); body != nil || !errors.As(err, &tooLarge) || tooLarge.Limit != 4 {
		t.Errorf("too large: %q, %v", body, err)
	}
	if left, err := io.ReadAll(r.Body); string(left) != "12345" || err != nil {
		t.Errorf("the handler reads %q, %v", left, err)
	}
}

func TestReadError(t *testing.T) {
	t.Parallel()
	broken := errors.New("the line is cut")
	for name, test := range bodyFuncs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const sent = "some of it"
			body := &probe{Reader: io.MultiReader(strings.NewReader(sent), iotest.ErrReader(broken))}
			r := httptest.NewRequest(http.MethodPost, "/", body)
			r.Header.Set("Content-Type", test.mediaType)
			for range 2 {
				if key, err := test.fn()(r); key != "" || err != broken {
					t.Errorf("%q, %v; want the error as it is", key, err)
				}
			}
			if got, err := io.ReadAll(r.Body); string(got) != sent || err != broken {
				t.Errorf("the body is %q, %v afterwards", got, err)
			}
			if body.ends.Load() != 1 {
				t.Errorf("the body was read %d times beyond its end", body.ends.Load())
			}
			if _ = r.Body.Close(); body.closes.Load() != 1 {
				t.Error("Close does not reach the original")
			}
		})
	}
}

func TestNoBody(t *testing.T) {
	t.Parallel()
	for body, r := range map[string]*http.Request{
		"nil":    {Method: http.MethodPost, Header: http.Header{}},
		"NoBody": httptest.NewRequest(http.MethodPost, "/", http.NoBody),
		"empty":  httptest.NewRequest(http.MethodPost, "/", io.NopCloser(strings.NewReader(""))),
	} {
		for name, test := range bodyFuncs {
			t.Run(name+", "+body, func(t *testing.T) {
				t.Parallel()
				r := r.Clone(t.Context())
				r.Header.Set("Content-Type", test.mediaType)
				want := map[string]answer{
					"JSON":      {kind: ErrMissing, text: `JSON value "/id" is missing`},
					"form":      {kind: ErrMissing, text: `form field "id" is missing`},
					"multipart": {kind: ErrMissing, text: `form field "id" is missing`},
					"hash":      {key: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
				}
				key, err := test.fn()(r)
				want[name].check(t, key, err)
			})
		}
	}
}

func TestContentEncoding(t *testing.T) {
	t.Parallel()
	for name, test := range bodyFuncs {
		for _, encoding := range [][]string{{"gzip"}, {"GZIP"}, {"br, gzip"}, {"identity, gzip"}, {"identity", "gzip"}, {"unknown"}} {
			body := &probe{Reader: strings.NewReader(test.body)}
			r := httptest.NewRequest(http.MethodPost, "/", body)
			r.Header = http.Header{"Content-Type": {test.mediaType}, "Content-Encoding": encoding}
			key, err := test.fn()(r)
			if name == "hash" { // as it came
				answer{key: test.key}.check(t, key, err)
				continue
			}
			if !errors.Is(err, ErrInvalid) || !strings.HasSuffix(err.Error(), "is compressed") || body.bytes.Load() != 0 {
				t.Errorf("%s, %q: %q, %v, with %d bytes read", name, encoding, key, err, body.bytes.Load())
			}
		}
		for _, encoding := range [][]string{{"identity"}, {"Identity"}, {""}, {" , identity"}} {
			r := post(strings.NewReader(test.body))
			r.Header = http.Header{"Content-Type": {test.mediaType}, "Content-Encoding": encoding}
			key, err := test.fn()(r)
			answer{key: test.key}.check(t, key, err)
		}
	}
}

func TestContentType(t *testing.T) {
	t.Parallel()
	ask := map[string]Func{"json": JSON("/id"), "form": FormValue("id")}
	noJSON := answer{kind: ErrInvalid, text: `the body, which should hold JSON value "/id", is not declared as JSON`}
	noForm := answer{kind: ErrInvalid, text: `the body, which should hold form field "id", is not declared as a form`}
	fine := answer{key: "42"}
	const document, form = `{"id":"42"}`, "id=42"
	tests := []struct {
		source, body string
		types        []string
		want         answer
	}{
		{"json", document, nil, fine},
		{"json", document, []string{""}, fine},
		{"json", document, []string{"application/json"}, fine},
		{"json", document, []string{"Application/JSON; charset=utf-8"}, fine},
		{"json", document, []string{"application/problem+json"}, fine},
		{"json", document, []string{"text/json"}, fine},
		{"json", document, []string{"text/plain"}, noJSON},
		{"json", document, []string{"application/x-www-form-urlencoded"}, noJSON},
		{"json", document, []string{"application/yaml"}, noJSON},
		{"json", document, []string{"application/json-seq"}, noJSON},
		{"json", document, []string{"application/json; charset"}, noJSON},
		{"json", document, []string{"application/json", "application/json"}, noJSON},
		{"form", form, nil, noForm},
		{"form", form, []string{""}, noForm},
		{"form", form, []string{"application/json"}, noForm},
		{"form", form, []string{"application/x-www-form-urlencoded; charset=utf-8"}, fine},
		{"form", form, []string{"APPLICATION/X-WWW-FORM-URLENCODED"}, fine},
		{"form", form, []string{"application/x-www-form-urlencoded; charset"}, noForm},
		{"form", form, []string{formType, formType}, noForm},
		{"form", form, []string{"multipart/mixed; boundary=b"}, noForm},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s %q", test.source, test.types), func(t *testing.T) {
			t.Parallel()
			r := post(strings.NewReader(test.body))
			r.Header["Content-Type"] = test.types
			key, err := ask[test.source](r)
			test.want.check(t, key, err)
		})
	}
}

// Close may run on another goroutine than Read, as when a proxy gives up a request.
func TestCloseWhileReading(t *testing.T) {
	t.Parallel()
	r := post(bytes.NewReader(make([]byte, 100_000)))
	if _, err := BodyHash()(r); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	started := make(chan struct{})
	reader.Go(func() {
		n := 0
		for {
			m, err := r.Body.Read(make([]byte, 1))
			if n += m; n == 1 {
				close(started)
			}
			if err == io.EOF || err == http.ErrBodyReadAfterClose {
				return
			}
		}
	})
	<-started
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	reader.Wait()
}
