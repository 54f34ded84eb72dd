package keyfuncs

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Value returns a value that the application knows of a request, such as the authenticated user:
// a string, an integer, or a [fmt.Stringer]. get must return it before the guard runs. source names
// it in logs, such as "session user".
//
// A missing (nil) or empty value is [ErrMissing], because it mostly means that the request is not
// authenticated. A value that contains control characters or invalid UTF-8 is [ErrInvalid]. A value
// of another type is a mistake in the program; guards log that error and answer 400. No answer to a
// client names source.
//
// Value panics if source is empty or get is nil.
func Value(source string, get func(*http.Request) any) Func {
	switch {
	case source == "":
		misuse(`Value("", get)`, "want a name of the value, for logs")
	case get == nil:
		misuse(fmt.Sprintf("Value(%q, nil)", source), "want a function that returns the value")
	}
	return valueOf(source, get)
}

// Claim returns a claim of a verified token, such as the subject of a JWT. claims returns all of
// them; nil: the request has no token, which is [ErrMissing]. path are the names that lead to the
// claim: Claim(claims, "sub"), or Claim(claims, "tenant", "id") for {"tenant": {"id": 7}}. A name
// is taken literally, whatever dots and slashes it has.
//
// The claim is a string or a whole number. JSON decoders make a float64 of a number: one beyond
// ±2^53 is [ErrInvalid], because several numbers become the same float64. A list, a boolean, an
// object or a fraction is ErrInvalid as well. A claim that is missing, null or empty is ErrMissing,
// also if a name on the way to it is. No answer to a client names a claim.
//
// Claim panics if claims is nil, or path is empty or has an empty name.
func Claim(claims func(*http.Request) map[string]any, path ...string) Func {
	if claims == nil {
		misuse("Claim(nil)", "want a function that returns the claims of a verified token")
	}
	if len(path) == 0 {
		misuse("Claim(claims)", `want the name of a claim, such as "sub"`)
	}
	for _, name := range path {
		if name == "" {
			misuse(fmt.Sprintf("Claim(claims, %q)", path), "has an empty name")
		}
	}
	source := "claim " + strconv.Quote(strings.Join(path, "."))
	refuse := hiddenRefusalsOf(source)
	kind := newHiddenError(ErrInvalid, "%s is neither a string nor a whole number within 2^53", source)
	names := slices.Clone(path)
	return func(r *http.Request) (string, error) {
		claim := lookUp(claims(r), names)
		if claim == nil {
			return "", refuse.missing
		}
		text, ok := claimText(claim)
		if !ok {
			return "", kind
		}
		return refuse.check(text)
	}
}

// lookUp returns the value that names lead to; nil: there is none.
func lookUp(claims map[string]any, names []string) any {
	var value any = claims
	for _, name := range names {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[name]
	}
	return value
}

// claimText is textOf for what decoders make of JSON.
func claimText(claim any) (string, bool) {
	switch v := claim.(type) {
	case json.Number:
		text, ok := canonicalNumber(v.String())
		return text, ok && !strings.Contains(text, ".")
	case float64:
		return wholeNumber(v)
	default:
		return textOf(claim)
	}
}

// valueOf is Value without the checks of its arguments.
func valueOf(source string, get func(*http.Request) any) Func {
	refuse := hiddenRefusalsOf(source)
	return func(r *http.Request) (string, error) {
		value := get(r)
		if value == nil {
			return "", refuse.missing
		}
		text, ok := textOf(value)
		if !ok {
			return "", fmt.Errorf("reqlock: keyfuncs: %s is of type %T; want a string, an integer or a fmt.Stringer", source, value)
		}
		return refuse.check(text)
	}
}

// textOf returns a value as a part of a key, and false if its type does not allow that.
func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case fmt.Stringer: // uuid.UUID and netip.Addr among them
		return v.String(), true
	case int:
		return strconv.Itoa(v), true
	case int8:
		return strconv.FormatInt(int64(v), 10), true
	case int16:
		return strconv.FormatInt(int64(v), 10), true
	case int32:
		return strconv.FormatInt(int64(v), 10), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint:
		return strconv.FormatUint(uint64(v), 10), true
	case uint8:
		return strconv.FormatUint(uint64(v), 10), true
	case uint16:
		return strconv.FormatUint(uint64(v), 10), true
	case uint32:
		return strconv.FormatUint(uint64(v), 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	}
	return "", false
}

// maxWhole is the first float64 that stands for more than one whole number.
const maxWhole = 1 << 53

func wholeNumber(v float64) (string, bool) {
	if math.Trunc(v) != v || math.Abs(v) >= maxWhole {
		return "", false
	}
	return strconv.FormatInt(int64(v), 10), true
}
