// Package keyerror is the error type of the sources in package keyfuncs. Package guard reads the
// answer and the log line from it, and package adapter hands both to adapters.
package keyerror

import (
	"errors"
	"fmt"
)

const prefix = "reqlock: keyfuncs: "

// An Error wraps one of the errors of package keyfuncs, with the text of one source. A source makes
// its errors once, so that a refusal allocates nothing.
type Error struct {
	kind   error
	detail string
	remedy string
	// hidden is true if clients must not see it.
	hidden bool
}

// New returns an error that wraps kind. Its text names the source, never the value.
func New(kind error, format string, args ...any) *Error {
	return &Error{kind: kind, detail: fmt.Sprintf(format, args...)}
}

// NewHidden is New for a source inside the program, of which clients must not learn the name.
func NewHidden(kind error, format string, args ...any) *Error {
	e := New(kind, format, args...)
	e.hidden = true
	return e
}

// WithRemedy sets what to change in the program, and returns e.
func (e *Error) WithRemedy(format string, args ...any) *Error {
	e.remedy = fmt.Sprintf(format, args...)
	return e
}

func (e *Error) Error() string { return prefix + e.detail }
func (e *Error) Unwrap() error { return e.kind }

// Detail returns the text of err without the prefix, and reports whether err wraps an Error that
// clients may see.
func Detail(err error) (detail string, ok bool) {
	var e *Error
	if !errors.As(err, &e) || e.hidden {
		return "", false
	}
	return e.detail, true
}

// Remedy returns what to change in the program, and reports whether err wraps an Error that knows.
func Remedy(err error) (change string, ok bool) {
	var e *Error
	if !errors.As(err, &e) || e.remedy == "" {
		return "", false
	}
	return e.remedy, true
}
