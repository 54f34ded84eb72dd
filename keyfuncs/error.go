package keyfuncs

import (
	"errors"
	"fmt"
)

// A sourceError wraps one of the errors of this package, with the text of one source. Sources make
// their errors once, so that a refusal allocates nothing.
type sourceError struct {
	kind   error
	detail string
	remedy string
	// hidden is true if clients must not see the detail.
	hidden bool
}

// newError returns an error that wraps kind. Its text names the source, never the value.
func newError(kind error, format string, args ...any) *sourceError {
	return &sourceError{kind: kind, detail: fmt.Sprintf(format, args...)}
}

// newHiddenError is newError for a source inside the program: only logs name it.
func newHiddenError(kind error, format string, args ...any) *sourceError {
	e := newError(kind, format, args...)
	e.hidden = true
	return e
}

// withRemedy sets what to change in the program, and returns e.
func (e *sourceError) withRemedy(format string, args ...any) *sourceError {
	e.remedy = fmt.Sprintf(format, args...)
	return e
}

func (e *sourceError) Error() string { return "reqlock: keyfuncs: " + e.detail }
func (e *sourceError) Unwrap() error { return e.kind }

// Detail returns the text of an error of this package, such as `header X-Tenant is missing`, and
// reports whether err is one. It names the source, never the value, so clients may see it.
func Detail(err error) (detail string, ok bool) {
	var e *sourceError
	if !errors.As(err, &e) || e.hidden {
		return "", false
	}
	return e.detail, true
}

// Remedy returns what to change in the program so that err does not occur, such as which wildcards
// a pattern has. It is for logs. ok is false if err does not come from this package, or has no
// remedy.
func Remedy(err error) (change string, ok bool) {
	var e *sourceError
	if !errors.As(err, &e) || e.remedy == "" {
		return "", false
	}
	return e.remedy, true
}
