package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/reqlock/reqlock/internal/jsontext"
)

// JSON returns the value at a JSON pointer (RFC 6901) in the body. "/order/id" is the member id of
// the member order, "/items/0" the first element of items, and "" the whole document. In a name, ~1
// stands for a slash and ~0 for a tilde. The handler reads the unchanged body.
//
// Strings are decoded, true and false stay, and numbers become plain decimals: 1, 1.0 and 10e-1 are
// the key "1". The number 1 and the string "1" are one key, because some handlers accept both.
// Integers are exact, up to 100 digits. A handler must decode them into an integer or an
// [encoding/json.Number]: a float64, which it gets by decoding into any, rounds integers above
// 2^53. Fractions may have 15 significant digits, which no float64 rounds.
//
// A value that is missing, null or empty, and a request without a body, is [ErrMissing].
// [ErrInvalid] is everything that handlers may read differently, or not at all:
//   - a document that is malformed, is followed by other data, or is nested deeper than
//     encoding/json allows (10,000)
//   - invalid UTF-8 and lone surrogates, anywhere in it
//   - a member in the path that is given more than once, or in another case: encoding/json
//     takes the last one, and "ID" for "id"
//   - an array or an object in place of the value, or a scalar in its path
//   - control characters in the value, and numbers with more digits than the limits above
//   - a Content-Type that is not JSON (application/json, text/json, or one that ends in +json; it
//     may be missing), and a Content-Encoding
//
// A body of more than 1 MiB, or of [MaxBody], is an error that matches *[http.MaxBytesError].
// Errors of reading it are returned unchanged.
//
// JSON panics if pointer is not a JSON pointer.
func JSON(pointer string, options ...BodyOption) Func {
	call := fmt.Sprintf("JSON(%q)", pointer)
	path, problem := jsontext.ParsePointer(pointer)
	if problem != "" {
		misuse(call, problem)
	}
	source := fmt.Sprintf("JSON value %q", pointer)
	v := &jsonValue{
		path:       path,
		body:       newBodyReader(call, source, options),
		refuse:     refusalsOf(source),
		null:       newError(ErrMissing, "%s is null", source),
		noJSON:     newError(ErrInvalid, "the body, which should hold %s, is not declared as JSON", source),
		compressed: newError(ErrInvalid, "the body, which should hold %s, is compressed", source),
		malformed:  newError(ErrInvalid, "the body, which should hold %s, is malformed", source),
		ambiguous:  newError(ErrInvalid, "%s is ambiguous: a name in its path is given more than once or in another case", source),
		misplaced:  newError(ErrInvalid, "%s cannot exist: a value in its path has another type", source),
		notScalar:  newError(ErrInvalid, "%s is neither a string nor a number nor a boolean", source),
		tooLong:    newError(ErrInvalid, "%s has too many digits", source),
	}
	return func(r *http.Request) (string, error) {
		document, err := v.document(r)
		if err != nil {
			return "", err
		}
		value, err := jsontext.Text(document).Trim().Find(v.path)
		switch {
		case errors.Is(err, jsontext.ErrMissing):
			return "", v.refuse.missing
		case errors.Is(err, jsontext.ErrMisplaced):
			return "", v.misplaced
		case err != nil:
			return "", v.ambiguous
		}
		return v.key(value)
	}
}

type jsonValue struct {
	path   []jsontext.Token
	body   *bodyReader
	refuse refusals

	null, noJSON, compressed, malformed, ambiguous, misplaced, notScalar, tooLong error
}

// document returns the body, which is valid JSON.
func (v *jsonValue) document(r *http.Request) ([]byte, error) {
	switch {
	case !hasBody(r):
		return nil, v.refuse.missing
	case compressed(r):
		return nil, v.compressed
	case !declaresJSON(r):
		return nil, v.noJSON
	}
	data, err := v.body.read(r)
	switch {
	case err != nil:
		return nil, err
	case len(data) == 0:
		return nil, v.refuse.missing
	case !jsontext.Valid(data):
		return nil, v.malformed
	}
	return data, nil
}

// declaresJSON reports whether the body is declared as JSON. A handler would read another type as
// something else, and one body may be valid as JSON and as a form.
func declaresJSON(r *http.Request) bool {
	media, _, ok := mediaType(r)
	return ok && (media == "" || media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json"))
}

func (v *jsonValue) key(value jsontext.Text) (string, error) {
	switch value[0] {
	case '"':
		return v.refuse.check(string(value.Unquote()))
	case '{', '[':
		return "", v.notScalar
	case 'n':
		return "", v.null
	case 't', 'f':
		return string(value[:value.End()]), nil
	}
	key, ok := canonicalNumber(string(value[:value.End()]))
	if !ok {
		return "", v.tooLong
	}
	return key, nil
}

// notAPointer returns why a text is not a JSON pointer, or "" if it is one.
func notAPointer(pointer string) (why string) {
	_, why = jsontext.ParsePointer(pointer)
	return why
}
