package keyfuncs

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/internal/request"
)

// defaultMaxBody is the largest body, in bytes, without [MaxBody].
const defaultMaxBody = 1 << 20

// A BodyOption changes how [BodyHash], [FormValue] and [JSON] read the body of a request.
type BodyOption func(*bodyReader)

// MaxBody sets the largest body, in bytes; the default is 1 MiB. A larger body is an error that
// matches *[http.MaxBytesError], which guards answer with 413. It panics if limit is less than 1.
func MaxBody(limit int64) BodyOption {
	if limit < 1 {
		misuse(fmt.Sprintf("MaxBody(%d)", limit), "want a number of bytes, at least 1")
	}
	return func(b *bodyReader) { b.limit = limit }
}

// A bodyReader reads the bodies for one source.
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

// read returns the whole body, and leaves an equal one in the request. The next source does not
// read from the client again. A body that is too large, or fails, still reads the same, up to the
// same error.
func (b *bodyReader) read(r *http.Request) ([]byte, error) {
	data, err := request.ReadBody(r, b.limit)
	if errors.Is(err, request.ErrBodyTooLarge) {
		return nil, b.tooLarge
	}
	return data, err
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// Body returns a function that reads the whole body of a request and leaves an equal one in its
// place. It is for key functions of your own. The result is nil if there is no body; do not change
// it. A body of more than 1 MiB, or of [MaxBody], is an error that matches *[http.MaxBytesError].
// One that does not fit into memory together with the bodies of other requests is [ErrBusy]. Errors
// of reading it are returned unchanged.
func Body(options ...BodyOption) func(*http.Request) ([]byte, error) {
	return newBodyReader("Body", "the requested data", options).read
}

// BodyHash returns the SHA-256 of the whole body, in 64 hexadecimal digits: requests with the same
// bytes have the same key. A compressed body is not decompressed, and a request without a body has
// the hash of no bytes. The handler reads the unchanged body.
//
// A body of more than 1 MiB, or of [MaxBody], is an error that matches *[http.MaxBytesError].
// Errors of reading it are returned unchanged.
func BodyHash(options ...BodyOption) Func {
	body := newBodyReader("BodyHash", "the data to hash", options)
	return func(r *http.Request) (string, error) {
		data, err := body.read(r)
		if err != nil {
			return "", err
		}
		return hexSum(data), nil
	}
}

// compressed reports whether the body has a Content-Encoding besides "identity". Handlers may
// decode such a body or not, so its key would be a guess.
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

// mediaType returns the type of the body in lower case, and its parameters; "": the request has
// none. ok is false if the type is malformed or given more than once.
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
