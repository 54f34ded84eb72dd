package keyfuncs

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/internal/bodybudget"
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
	return func(b *bodyReader) { b.limit = limit }
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
	data, err := bodybudget.Read(r, b.limit)
	if errors.Is(err, bodybudget.ErrTooLarge) {
		return nil, b.tooLarge
	}
	return data, err
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// Body returns a function that returns the whole body of a request, nil if there is none, and leaves one in the request that reads
// the same: for functions of the caller's own that look into it, as sources of this package do. What it returns must not
// be changed. A body of more than 1 MiB, or of [MaxBody], is an error that matches *[http.MaxBytesError], and one that does not fit
// into memory beside the bodies of other requests is [ErrBusy]. An error in reading it is returned as it is.
func Body(options ...BodyOption) func(*http.Request) ([]byte, error) {
	return newBodyReader("Body", "what is asked for", options).read
}

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
