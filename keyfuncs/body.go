package keyfuncs

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
)

// defaultMaxBody is how many bytes of a body are read at most, unless [MaxBody] says otherwise.
const defaultMaxBody = 1 << 20

// A BodyOption changes how [BodyHash], [FormValue] and [JSON] read the body of a request.
type BodyOption func(*bodyReader)

// MaxBody sets how many bytes a body may have; without it that is 1 MiB. A larger body is an error that matches
// *[http.MaxBytesError], which guards answer with 413. It panics if limit is less than 1.
func MaxBody(limit int64) BodyOption {
	if limit < 1 {
		misuse(fmt.Sprintf("MaxBody(%d)", limit), "want a number of bytes, at least 1")
	}
	return func(b *bodyReader) { b.limit = min(limit, math.MaxInt64-1) } // room for one more, by which it is seen that there is more
}

// A bodyReader reads the bodies that one source looks into.
type bodyReader struct {
	limit    int64
	tooLarge error
}

func newBodyReader(call, source string, options []BodyOption) *bodyReader {
	b := &bodyReader{limit: defaultMaxBody}
	for _, option := range options {
		if option == nil {
			misuse(call, "a BodyOption is nil")
		}
		option(b)
	}
	b.tooLarge = newError(&http.MaxBytesError{Limit: b.limit}, "the body, which should hold %s, is larger than %d bytes", source, b.limit)
	return b
}

// read returns the whole body, and leaves one in the request that reads the same. A body that has been read for one
// source is there for the next. What could not be read to its end, or is too large, still reads the same afterwards, up
// to the same error.
func (b *bodyReader) read(r *http.Request) ([]byte, error) {
	if !hasBody(r) {
		return nil, nil
	}
	if known, ok := r.Body.(*body); ok {
		if int64(len(known.data)) > b.limit {
			return nil, b.tooLarge
		}
		return known.data, nil
	}
	if r.ContentLength > b.limit {
		return nil, b.tooLarge
	}
	original := r.Body
	data, err := io.ReadAll(io.LimitReader(original, b.limit+1))
	switch {
	case err != nil:
		r.Body = &restored{Reader: io.MultiReader(bytes.NewReader(data), failure{err}), Closer: original}
		return nil, err
	case int64(len(data)) > b.limit:
		r.Body = &restored{Reader: io.MultiReader(bytes.NewReader(data), original), Closer: original}
		return nil, b.tooLarge
	}
	r.Body = &body{data: data, unread: bytes.NewReader(data), original: original}
	return data, nil
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// A body holds all of what another one gave. As with the bodies of net/http, Close may be called at any time, and nothing can be
// read after it.
type body struct {
	data     []byte // never changed: the Funcs that come later read it, wherever the handler has got to
	unread   *bytes.Reader
	original io.Closer
	closed   atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.unread.Read(p)
}

func (b *body) Close() error {
	b.closed.Store(true)
	return b.original.Close()
}

// Body returns a function that returns the whole body of a request, nil if there is none, and leaves one in the request that reads
// the same: for functions of the caller's own that look into it, as sources of this package do. What it returns must not
// be changed. A body of more than 1 MiB, or of [MaxBody], is an error that matches *[http.MaxBytesError]. An error in reading it
// is returned as it is.
func Body(options ...BodyOption) func(*http.Request) ([]byte, error) {
	return newBodyReader("Body", "what is asked for", options).read
}

// Buffered reports whether a Func of this package has read the whole body of the request, so that whoever reads it again does
// not wait for the client.
func Buffered(r *http.Request) bool {
	_, ok := r.Body.(*body)
	return ok
}

// A restored body begins with what was read of another one, and is closed as that one.
type restored struct {
	io.Reader
	io.Closer
}

// A failure is where the reading of a body ended.
type failure struct{ error }

func (f failure) Read([]byte) (int, error) { return 0, f.error }

// BodyHash takes the SHA-256 of the whole body, in 64 hexadecimal digits: requests with the same bytes have the same
// key. A compressed body is hashed as it came, and a request without a body has the hash of no bytes. The handler reads the
// body as if it had not been touched.
//
// A body of more than 1 MiB, or of [MaxBody], is an error that matches *[http.MaxBytesError]. An error in reading it is
// returned as it is.
func BodyHash(options ...BodyOption) Func {
	body := newBodyReader("BodyHash", "what is hashed", options)
	return func(r *http.Request) (string, error) {
		data, err := body.read(r)
		if err != nil {
			return "", err
		}
		return hexSum(data), nil
	}
}

// compressed reports whether the body has a Content-Encoding besides "identity". What a handler would make of it is not
// known here: one that ignores the header and one that heeds it read different things.
func compressed(r *http.Request) bool {
	for _, line := range r.Header["Content-Encoding"] {
		for coding := range strings.SplitSeq(line, ",") {
			if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
				return true
			}
		}
	}
	return false
}

// mediaType is the type of the body in lower case, without parameters; empty: the request does not say. It is not ok if it
// is malformed or given more than once.
func mediaType(r *http.Request) (name string, params map[string]string, ok bool) {
	values := r.Header["Content-Type"]
	switch {
	case len(values) > 1:
		return "", nil, false
	case len(values) == 0 || values[0] == "":
		return "", nil, true
	}
	name, params, err := mime.ParseMediaType(values[0])
	return name, params, err == nil
}
