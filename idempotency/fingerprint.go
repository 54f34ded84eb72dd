package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/internal/jsontext"
)

// A Fingerprint decides what a repeat must have in common with the first request. FingerprintBody,
// FingerprintJSON, FingerprintNone and FingerprintFields are the only ones. Method and path always
// count. With all but FingerprintNone, so do the headers that decide whether to act, and which part
// or form of the answer to send: If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since,
// If-Range, Range and Accept. Accept-Encoding and Accept-Language do not: middleware around the
// guard encodes the answer, proxies and users change both between two attempts, and neither changes
// what is done. Only a hash is stored. If a route gets another Fingerprint, repeats of all recorded
// requests get 422.
type Fingerprint interface {
	// add adds the compared parts to s. body is nil if readsBody is false.
	add(s *sum, r *http.Request, body []byte)
	readsBody() bool
	validate() error
}

// The Fingerprints without parameters.
const (
	// FingerprintBody compares method, path, query, Content-Type, Content-Encoding and the body,
	// byte for byte. It is the default.
	//
	// A multipart body is compared by its parts instead, in their order: the headers of each and its
	// content, byte for byte, also if that is multipart itself. The boundary, which clients choose
	// anew for each attempt, does not count; nor does what precedes the first part or follows the
	// last one. A multipart body is compared byte for byte if it is malformed, has a
	// Content-Encoding, or has more than 1,000 parts or 10,000 header lines in them.
	FingerprintBody whole = iota
	// FingerprintJSON compares method, path, query and the JSON value of the body. White space, the
	// order of members and the spelling of strings do not matter. The spelling of numbers does: 1.0
	// is not 1. A body is compared as by FingerprintBody if it is not JSON, if it is nested deeper
	// than 10,000, or if decoders may read it in different ways because of a duplicate name, a name
	// in two cases or a lone surrogate.
	FingerprintJSON
	// FingerprintNone compares only method and path: another request with the same key on a path
	// gets the first answer.
	FingerprintNone
)

// FingerprintFields compares method, path and the JSON values of the body at the pointers, RFC
// 6901, each as FingerprintJSON does. A missing value differs from null. A body that
// FingerprintJSON compares as by FingerprintBody is compared so here as well, and so is one with a
// name that differs from a name in a pointer only in case: encoding/json takes one for the other.
// Config.Validate refuses an invalid pointer, and no pointers.
func FingerprintFields(pointers ...string) Fingerprint {
	f := &fields{pointers: slices.Clone(pointers), paths: make([][]jsontext.Token, len(pointers))}
	for i, pointer := range pointers {
		var problem string
		if f.paths[i], problem = jsontext.ParsePointer(pointer); problem != "" {
			f.invalid = fmt.Errorf("Fingerprint has FingerprintFields(%q), which is %s", pointer, problem)
			return f
		}
	}
	if len(pointers) == 0 {
		f.invalid = errors.New(`Fingerprint is FingerprintFields(); name at least one pointer, such as FingerprintFields("/amount"), or use FingerprintNone`)
	}
	return f
}

// whole is a Fingerprint of the whole request, or of nothing in it.
type whole int

func (f whole) readsBody() bool { return f != FingerprintNone }

func (f whole) validate() error {
	if f < FingerprintBody || f > FingerprintNone {
		return fmt.Errorf("Fingerprint is %d; use one of the constants, such as FingerprintBody", int(f))
	}
	return nil
}

func (f whole) add(s *sum, r *http.Request, body []byte) {
	switch f {
	case FingerprintNone:
		s.add("none")
	case FingerprintJSON:
		if digests, ok := jsontext.Digests(body, nil); ok {
			s.add("json", r.URL.RawQuery, string(digests[0][:]))
			return
		}
		addBody(s, r, body)
	default:
		addBody(s, r, body)
	}
}

// addBody adds the query, the body, and the headers that say how to read it.
func addBody(s *sum, r *http.Request, body []byte) {
	if addParts(s, r, body) {
		return
	}
	s.add("whole", r.URL.RawQuery)
	s.addValues(r.Header["Content-Type"])
	s.addValues(r.Header["Content-Encoding"])
	s.addBytes(body)
}

// conditions are the headers that decide whether to act, and which part or form of the answer to
// send.
var conditions = [...]string{
	"Accept", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range",
}

// addConditions adds those that were sent, by name, so that the others cost nothing.
func addConditions(s *sum, header http.Header) {
	for _, name := range conditions {
		if values := header[name]; len(values) > 0 {
			s.add(name)
			s.addValues(values)
		}
	}
}

// fields is a Fingerprint of some JSON values.
type fields struct {
	pointers []string
	paths    [][]jsontext.Token // The pointers are parsed here.
	invalid  error
}

func (f *fields) readsBody() bool { return true }
func (f *fields) validate() error { return f.invalid }

func (f *fields) add(s *sum, r *http.Request, body []byte) {
	digests, ok := jsontext.Digests(body, f.paths...)
	if !ok {
		addBody(s, r, body)
		return
	}
	s.add("fields")
	for i, pointer := range f.pointers {
		value := ""
		if digests[i] != nil {
			value = string(digests[i][:])
		}
		s.add(pointer, value)
	}
}

// fingerprint returns the hash of the parts that f compares.
func fingerprint(f Fingerprint, r *http.Request, body []byte) [fingerprintSize]byte {
	s := newSum("request")
	prefix := mount(r)
	s.add(r.Method, prefix+r.URL.Path)
	if r.URL.RawPath != "" { // otherwise no slash is encoded
		addSegments(s, prefix+r.URL.EscapedPath())
	}
	if f.readsBody() {
		addConditions(s, r.Header)
	}
	f.add(s, r, body)
	return s.sum()
}

// addSegments adds the segments of a path with an encoded slash: decoded, a slash in a segment looks
// like one between two.
func addSegments(s *sum, sent string) {
	if !strings.Contains(sent, "%2F") && !strings.Contains(sent, "%2f") {
		return
	}
	s.add("segments")
	for segment := range strings.SplitSeq(sent, "/") {
		if plain, err := url.PathUnescape(segment); err == nil {
			segment = plain
		}
		s.add(segment)
	}
}
