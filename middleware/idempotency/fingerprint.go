package idempotency

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A Fingerprint says what two requests with one key must have in common to be the same request. Method and path always
// count; the rest is up to WholeRequest, CanonicalJSON, Fields or None. Only a hash of it is kept. To change the Fingerprint of a route is to make all
// requests different from those that are on record.
type Fingerprint struct {
	write   func(s *sum, r *http.Request, body []byte) // nil: WholeRequest
	noBody  bool                                       // write does not look at it
	problem error                                      // with its parameters
}

var (
	// WholeRequest compares method, path, query, Content-Type, Content-Encoding and the body, byte for byte.
	WholeRequest = Fingerprint{write: func(s *sum, r *http.Request, body []byte) {
		s.add("whole", r.URL.RawQuery)
		for _, name := range []string{"Content-Type", "Content-Encoding"} {
			s.add(strconv.Itoa(len(r.Header[name])))
			s.add(r.Header[name]...)
		}
		s.addBytes(body)
	}}

	// CanonicalJSON compares method, path, query and the body's JSON value: white space, the order of members and the spelling
	// of strings do not matter, but that of numbers does, 1.0 not being 1. A body that is not JSON, or is nested deeper than
	// 10,000, or that decoders read in different ways because of a name given twice, or in two cases, or a lone surrogate, is
	// compared as in WholeRequest.
	CanonicalJSON = Fingerprint{write: func(s *sum, r *http.Request, body []byte) {
		digests, ok := digestJSON(body, wholeDocument)
		if !ok {
			WholeRequest.write(s, r, body)
			return
		}
		s.add("json", r.URL.RawQuery, string(digests[0]))
	}}

	// None compares only method and path: whoever uses a key again on a path gets the first answer.
	None = Fingerprint{noBody: true, write: func(s *sum, _ *http.Request, _ []byte) { s.add("none") }}
)

// Fields compares method, path and the JSON values of the body at the pointers of RFC 6901, each as CanonicalJSON does; that a
// value is not there is a value of its own. A body that CanonicalJSON would not take is compared as in WholeRequest, and so is
// one with a name that differs from that of a pointer only in its case: encoding/json takes the one for the other.
func Fields(pointers ...string) Fingerprint {
	tree := &pointerTree{}
	for i, pointer := range pointers {
		path, err := parsePointer(pointer)
		if err != nil {
			return Fingerprint{problem: err}
		}
		tree.add(path, i)
	}
	if len(pointers) == 0 {
		return Fingerprint{problem: fmt.Errorf(`Fingerprint is Fields(); name at least one, such as Fields("/amount"), or use None`)}
	}
	pointers = slices.Clone(pointers)
	return Fingerprint{write: func(s *sum, r *http.Request, body []byte) {
		digests, ok := digestJSON(body, tree)
		if !ok {
			WholeRequest.write(s, r, body)
			return
		}
		s.add("fields")
		for i, pointer := range pointers {
			s.add(pointer, string(digests[i])) // "" for none
		}
	}}
}

// of sums up a request.
func (f Fingerprint) of(r *http.Request, body []byte) [printSize]byte {
	s := newSum("request")
	prefix := mount(r)
	s.add(r.Method, prefix+r.URL.Path)
	if sent := r.URL.EscapedPath(); strings.Contains(sent, "%2F") || strings.Contains(sent, "%2f") {
		s.add("segments") // decoded, a slash within one cannot be told from one between two
		for segment := range strings.SplitSeq(prefix+sent, "/") {
			if plain, err := url.PathUnescape(segment); err == nil {
				segment = plain
			}
			s.add(segment)
		}
	}
	f.write(s, r, body)
	return s.sum()
}
