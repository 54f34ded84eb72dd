package idempotency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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
	// of strings do not matter, but that of numbers does, 1.0 not being 1. A body that is no JSON, or that decoders read in
	// different ways because of a name given twice, or in two cases, or a lone surrogate, is compared as in WholeRequest.
	CanonicalJSON = Fingerprint{write: func(s *sum, r *http.Request, body []byte) {
		value, ok := decodeJSON(body)
		if !ok {
			WholeRequest.write(s, r, body)
			return
		}
		s.add("json", r.URL.RawQuery)
		s.addBytes(canonical(value))
	}}

	// None compares only method and path: whoever uses a key again on a path gets the first answer.
	None = Fingerprint{noBody: true, write: func(s *sum, _ *http.Request, _ []byte) { s.add("none") }}
)

// Fields compares method, path and the JSON values of the body at the pointers of RFC 6901, each as CanonicalJSON does; that a
// value is not there is a value of its own. A body that CanonicalJSON would not take is compared as in WholeRequest.
func Fields(pointers ...string) Fingerprint {
	paths := make([][]string, len(pointers))
	for i, pointer := range pointers {
		path, err := parsePointer(pointer)
		if err != nil {
			return Fingerprint{problem: err}
		}
		paths[i] = path
	}
	if len(paths) == 0 {
		return Fingerprint{problem: fmt.Errorf(`Fingerprint is Fields(); name at least one, such as Fields("/amount"), or use None`)}
	}
	return Fingerprint{write: func(s *sum, r *http.Request, body []byte) {
		document, ok := decodeJSON(body)
		if !ok {
			WholeRequest.write(s, r, body)
			return
		}
		for _, path := range paths {
			if inOtherCase(document, path) {
				WholeRequest.write(s, r, body)
				return
			}
		}
		s.add("fields")
		for i, path := range paths {
			s.add(pointers[i])
			if value, found := at(document, path); found {
				s.addBytes(canonical(value))
			} else {
				s.add("") // no JSON value is that short
			}
		}
	}}
}

// of sums up a request.
func (f Fingerprint) of(r *http.Request, body []byte) [printSize]byte {
	s := newSum("request")
	s.add(r.Method, mount(r), r.URL.Path)
	if sent := r.URL.EscapedPath(); strings.Contains(sent, "%2F") || strings.Contains(sent, "%2f") {
		s.add("segments") // decoded, a slash within one cannot be told from one between two
		for segment := range strings.SplitSeq(sent, "/") {
			if plain, err := url.PathUnescape(segment); err == nil {
				segment = plain
			}
			s.add(segment)
		}
	}
	f.write(s, r, body)
	return s.sum()
}

func parsePointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	if pointer[0] != '/' || strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(pointer), "~") {
		return nil, fmt.Errorf(`Fingerprint has Fields(%q), which is no JSON pointer; want one such as "/order/id", with ~0 for a tilde and ~1 for a slash in a name`, pointer)
	}
	path := strings.Split(pointer[1:], "/")
	for i, token := range path {
		path[i] = strings.NewReplacer("~0", "~", "~1", "/").Replace(token)
	}
	return path, nil
}

// at follows a pointer.
func at(value any, path []string) (any, bool) {
	for _, token := range path {
		switch node := value.(type) {
		case map[string]any:
			member, ok := node[token]
			if !ok {
				return nil, false
			}
			value = member
		case []any:
			index, err := strconv.Atoi(token)
			if err != nil || index < 0 || index >= len(node) || strconv.Itoa(index) != token {
				return nil, false
			}
			value = node[index]
		default:
			return nil, false
		}
	}
	return value, true
}

// inOtherCase reports whether a path leads nowhere, and would lead to something for encoding/json, which takes "ID" for "id".
func inOtherCase(document any, path []string) bool {
	for i := range path {
		parent, _ := at(document, path[:i])
		object, isObject := parent.(map[string]any)
		if !isObject {
			continue
		}
		if _, exact := object[path[i]]; exact {
			continue
		}
		for name := range object {
			if strings.EqualFold(name, path[i]) {
				return true
			}
		}
	}
	return false
}

// canonical writes a decoded value: members sorted, numbers as they came.
func canonical(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("reqlock: idempotency: a decoded JSON value cannot be encoded: " + err.Error())
	}
	return text
}

// decodeJSON decodes a document of which all decoders make the same.
func decodeJSON(body []byte) (any, bool) {
	if !utf8.Valid(body) || !json.Valid(body) { // the latter bounds the depth as well
		return nil, false
	}
	in := json.NewDecoder(bytes.NewReader(body))
	in.UseNumber()
	return decodeValue(in)
}

func decodeValue(in *json.Decoder) (any, bool) {
	token, err := in.Token()
	if err != nil {
		return nil, false
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return decodeObject(in)
		}
		return decodeArray(in)
	case string:
		return token, unambiguous(token)
	}
	return token, true
}

func decodeObject(in *json.Decoder) (any, bool) {
	object := make(map[string]any)
	folded := make(map[string]bool)
	for in.More() {
		token, err := in.Token()
		name, isString := token.(string)
		same := fold(name)
		if err != nil || !isString || folded[same] || !unambiguous(name) {
			return nil, false
		}
		folded[same] = true
		value, ok := decodeValue(in)
		if !ok {
			return nil, false
		}
		object[name] = value
	}
	_, err := in.Token()
	return object, err == nil
}

func decodeArray(in *json.Decoder) (any, bool) {
	array := []any{}
	for in.More() {
		value, ok := decodeValue(in)
		if !ok {
			return nil, false
		}
		array = append(array, value)
	}
	_, err := in.Token()
	return array, err == nil
}

// fold makes one of all names that encoding/json takes for each other: "ID" for "id".
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r { // the orbit begins again with its smallest
				return next
			}
			r = next
		}
	}, name)
}

// unambiguous refuses what a lone surrogate is decoded to.
func unambiguous(s string) bool { return !strings.ContainsRune(s, utf8.RuneError) }
