package keyfuncs

import (
	"fmt"
	"net/http"
	"reflect"
)

// Context returns a value that the application put into the request's context under key, such as
// the authenticated user: a string or a [fmt.Stringer]. It must be there before the guard runs. A
// value in the framework's own context, such as one of Gin's Context.Set, is not in the request's.
//
// A missing or empty value is [ErrMissing], because it mostly means that the request is not
// authenticated. A value that contains control characters or invalid UTF-8 is [ErrInvalid]. A value
// of another type is a mistake in the program; guards log that error.
//
// Context panics if key is nil or cannot be compared.
func Context(key any) Func {
	switch {
	case key == nil:
		misuse("Context(nil)", "want the key of a context value")
	case !reflect.ValueOf(key).Comparable():
		misuse(fmt.Sprintf("Context(%T)", key), "cannot be compared, so it cannot be a context key")
	}
	source := "context value " + contextKeyName(key)
	refuse := refusalsOf(source)
	return func(r *http.Request) (string, error) {
		switch value := r.Context().Value(key).(type) {
		case nil:
			return "", refuse.missing
		case string:
			return refuse.check(value)
		case fmt.Stringer:
			return refuse.check(value.String())
		default:
			return "", fmt.Errorf("reqlock: keyfuncs: %s is of type %T; want a string or a fmt.Stringer", source, value)
		}
	}
}

// contextKeyName returns the key's type, because its value is rarely informative.
func contextKeyName(key any) string {
	if name, ok := key.(string); ok {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%T", key)
}
