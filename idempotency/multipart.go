package idempotency

import (
	"bytes"
	"crypto/sha256"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The limits of mime/multipart for a form. A body beyond them is compared byte for byte.
const (
	maxParts       = 1000
	maxPartHeaders = 10_000 // So many lines may all parts have together.
)

// addParts adds what is compared of a multipart body: the query, the parts, and the Content-Type
// without its boundary, which clients choose anew for each attempt. It adds nothing, and returns
// false, if the body is another one, or has no parts that a handler could read.
func addParts(s *sum, r *http.Request, body []byte) bool {
	media, params := multipartType(r.Header)
	parts, ok := sumOfParts(body, params["boundary"])
	if !ok {
		return false
	}
	delete(params, "boundary")
	s.add("parts", r.URL.RawQuery, media, strconv.Itoa(len(params)))
	for _, name := range slices.Sorted(maps.Keys(params)) {
		s.add(name, params[name])
	}
	s.addBytes(parts[:])
	return true
}

// multipartType returns the media type of a multipart body, and its parameters. There are none if
// the body is another one or is encoded: bytes between boundaries are no parts then.
func multipartType(header http.Header) (media string, params map[string]string) {
	const prefix = "multipart/"
	types := header["Content-Type"]
	if len(types) != 1 || len(types[0]) < len(prefix) || !strings.EqualFold(types[0][:len(prefix)], prefix) ||
		len(header["Content-Encoding"]) > 0 {
		return "", nil
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil {
		return "", nil
	}
	return media, params
}

// sumOfParts returns the sum of the parts between the boundaries: their order, headers and
// contents. It reads them as a handler does with mime/multipart, and keeps no content. ok is false
// if the body is malformed, lacks its last boundary or exceeds a limit.
func sumOfParts(body []byte, boundary string) (sum [sha256.Size]byte, ok bool) {
	if boundary == "" {
		return sum, false
	}
	in, content, buf := multipart.NewReader(bytes.NewReader(body), boundary), sha256.New(), make([]byte, 4096)
	all, head := newSum("parts"), newSum("head")
	for parts, lines := 0, 0; ; parts++ {
		// Raw, because the header that NextPart hides belongs to the request.
		part, err := in.NextRawPart()
		if err == io.EOF { // io.EOF itself: the last boundary was there
			return all.sum(), true
		}
		if err != nil || parts == maxParts {
			return sum, false
		}
		head.parts = head.parts[:0]
		for _, name := range slices.Sorted(maps.Keys(part.Header)) {
			head.add(name)
			head.addValues(part.Header[name])
			lines += len(part.Header[name])
		}
		content.Reset()
		if _, err := io.CopyBuffer(content, part, buf); err != nil || lines > maxPartHeaders {
			return sum, false
		}
		hash := head.sum()
		all.parts = content.Sum(append(all.parts, hash[:]...))
	}
}
