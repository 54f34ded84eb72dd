package keyfuncs

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// refusals are the errors of one source, such as "header X-Tenant".
type refusals struct {
	missing, empty, repeated, notUTF8, control error
}

func refusalsOf(source string) refusals { return newRefusals(newError, source) }

// hiddenRefusalsOf is refusalsOf for a source inside the program: only logs name it.
func hiddenRefusalsOf(source string) refusals { return newRefusals(newHiddenError, source) }

func newRefusals(newError func(kind error, format string, args ...any) *sourceError, source string) refusals {
	return refusals{
		missing:  newError(ErrMissing, "%s is missing", source),
		empty:    newError(ErrMissing, "%s is empty", source),
		repeated: newError(ErrInvalid, "%s is given more than once", source),
		notUTF8:  newError(ErrInvalid, "%s is not valid UTF-8", source),
		control:  newError(ErrInvalid, "%s has control characters in it", source),
	}
}

// one returns the only value of a source. It refuses two values even if they are equal, because it
// cannot know which one the handler reads, or whether a proxy merges them.
func (e *refusals) one(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", e.missing
	case 1:
		return e.check(values[0])
	default:
		return "", e.repeated
	}
}

// check returns value, or an error if it cannot be a key.
func (e *refusals) check(value string) (string, error) {
	switch {
	case value == "":
		return "", e.empty
	case !utf8.ValidString(value):
		return "", e.notUTF8
	case strings.ContainsFunc(value, unicode.IsControl):
		return "", e.control
	}
	return value, nil
}
