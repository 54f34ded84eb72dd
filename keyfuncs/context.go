package keyfuncs

import (
	"fmt"
	"net/http"
	"reflect"
)

// Context returns a value that the application put into the request's context under key, such as
// the authenticated user: a value of a type that [Value] knows. It must be there before the guard
// runs. A value in the framework's own context, such as one of Gin's Context.Set, is not in the
// request's: see ginlock.Value and its like.
//
// Errors are those of [Value]. Context panics if key is nil or cannot be compared.
func Context(key any) Func {
	switch {
	case key == nil:
		misuse("Context(nil)", "want the key of a context value")
	case !reflect.ValueOf(key).Comparable():
		misuse(fmt.Sprintf("Context(%T)", key), "cannot be compared, so it cannot be a context key")
	}
	return valueOf("context value "+contextKeyName(key), func(r *http.Request) any { return r.Context().Value(key) })
}

// contextKeyName returns the key's type, because its value is rarely informative.
func contextKeyName(key any) string {
	if name, ok := key.(string); ok {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%T", key)
}
