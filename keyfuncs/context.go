package keyfuncs

import (
	"fmt"
	"net/http"
	"reflect"
)

// Context takes a value that the application has put into the request's context under key, such as the user that it
// has authenticated: a string or a [fmt.Stringer]. It has to be there before the guard asks; what a framework keeps in a
// context of its own, such as Gin's Context.Set, is not in the request's.
//
// A value that is not there or empty is [ErrMissing], since that mostly means a request that did not authenticate. One
// that has control characters or invalid UTF-8 in it is [ErrInvalid]. A value of another type is a mistake in the
// program; that error is none of this package's, and guards log it.
//
// Context panics if key is nil or cannot be compared.
func Context(key any) Func {
	switch {
	case key == nil:
		misuse("Context(nil)", "want the key of a context value")
	case !reflect.ValueOf(key).Comparable():
		misuse(fmt.Sprintf("Context(%T)", key), "cannot be compared, and is no key of a context value")
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

// contextKeyName names a key as programs do: by its type, since its value mostly says nothing.
func contextKeyName(key any) string {
	if name, ok := key.(string); ok {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%T", key)
}
